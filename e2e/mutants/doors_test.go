package mutants_test

const (
	whoCalls  = "control/access.go"
	whoWrites = "proxy/access.go"
	whoIs     = "internal/auth/principals.go"
	unread    = "internal/framing/refuse.go"
	unheard   = "internal/framing/conn.go"
)

var namespaceOfTheRoute = one(whoWrites, "\t\treturn ex.writer.Namespace()\n", "\t\treturn ex.rt.Namespace\n")

func doorMutants() []mutant {
	return []mutant{
		{core: true, name: "a job outside the caller's prefixes is its own",
			edits: one(whoCalls, "if !who.Owns(id) {", "if who == nil {"), pkg: "control", test: "TestAJobOutsideThePrefixesIsForbiddenWhetherItExistsOrNot"},
		{core: true, name: "the namespace of the caller is not looked at",
			edits: one(whoCalls, "Namespace: who.Namespace(), ID: id}, nil", "ID: id}, nil"), pkg: "control", test: "TestTwoTenantsWithTheSameIdsNeitherMoveNorSeeEachOther"},
		{name: "a certificate makes up for a token that is wrong",
			edits: one(whoCalls, "len(values) > 0 {", "len(values) > 0 && r.TLS == nil {"), pkg: "control", test: "TestACertificateCountsWhereNoTokenIsSent"},
		{name: "a path that is spelled like health's is open",
			edits: one(whoCalls, "r.URL.RawPath == \"\" && ", ""), pkg: "control", test: "TestWithoutACredentialNothingButHealthIsAnswered"},
		{name: "lists go over the jobs of everybody in the namespace",
			edits: one("control/operator.go", "range who.Within(q[\"prefix\"])", "range []string{q[\"prefix\"]}"), pkg: "control", test: "TestListsHaveTheOwnJobsOnlyOnEveryPage"},
		{name: "the search for a token ends at the first hit",
			edits: one(whoIs, "found = subtle.ConstantTimeSelect(ps.same(hash[:], ps.tokens[i].hash[:]), i, found)",
				"if found = subtle.ConstantTimeSelect(ps.same(hash[:], ps.tokens[i].hash[:]), i, found); found >= 0 {\nbreak\n}"),
			pkg: "internal/auth", test: "TestATokenIsComparedWithEveryHash"},
		{name: "a certificate with the names of two principals belongs to one",
			edits: one(whoIs, "\t\tif found != nil {\n\t\t\treturn nil\n\t\t}\n", ""), pkg: "internal/auth", test: "TestACertificateFindsThePrincipalWithOneOfItsWholeNames"},
		{name: "a writer has the namespace of the route",
			edits: namespaceOfTheRoute, pkg: "proxy", test: "TestWritersOfTwoTenantsWithTheSameIdsHaveFloorsAndRepliesOfTheirOwn"},
		{name: "a job outside the writer's prefixes is judged",
			edits: one(whoWrites, "ex.writer != nil && !ex.writer.Owns(id)", "ex.writer == nil && id == \"\""), pkg: "proxy", test: "TestAJobOutsideTheWritersPrefixesIsForbiddenAndTellsNoFloor"},
		{name: "a certificate that names nobody is not looked at",
			edits: one(whoWrites, "\tcase ex.writer == nil:\n", "\tcase ex.writer == nil && ex.r.TLS == nil:\n"), pkg: "proxy", test: "TestAWriteOfNobodyIsForbiddenBeforeItIsJudged"},
		{name: "a request meets a route with the principals of another configuration",
			edits: one(whoWrites, "ps := ex.principals\n", "ps := ex.p.table.Load().principals\n"), pkg: "proxy", test: "TestNoRequestMeetsARouteWithThePrincipalsOfAnotherConfiguration"},
		{name: "the control listener takes every descriptor",
			edits: one("cmd/fenceproxy/daemon.go", "listen.Bound(controlLn, forControl)", "listen.Bound(controlLn, 0*forControl)"), pkg: "cmd/fenceproxy", test: "TestAFloodOfTheControlListenerLeavesDescriptorsToOthers"},
		{name: "without an auth file any name is served",
			edits: one("control/guard.go", "!namesThisMachine(r.Host)", "r.Host == \"*\""), pkg: "control", test: "TestWithoutAnAuthFileOnlyNamesOfThisMachineAreServed"},
		{name: "a refusal waits for a body that never ends",
			edits: one("control/control.go", "s.boundBody, s.boundAnswer, s.sameOrigin,", "s.boundAnswer, s.sameOrigin, s.boundBody,"), pkg: "control", test: "TestABodyThatNeverEndsIsGivenUpBehindARefusalToo"},
		{name: "a caller that reads no answers is kept",
			edits: one("control/control.go", "s.boundAnswer, ", ""), pkg: "control", test: "TestACallerThatReadsNoAnswersIsGivenUp"},
		{name: "the server refuses in its own words",
			edits: one(unread, "c.refusal == nil || c.serving.Load()", "c.refusal != nil || c.serving.Load()"), pkg: "internal/listen", test: "TestEveryRefusalOfHTTP1IsInOurWords"},
		{name: "a later request that begins badly is passed over in silence",
			edits: one(unheard, "case c.refusal != nil && !c.serving.Load():", "case c.refusal == nil && !c.serving.Load():"), pkg: "internal/listen", test: "TestEveryRefusalOfHTTP1IsInOurWords"},
		{name: "a request that was refused is served",
			edits: one(unread, "\tif c.refused {\n\t\treturn false\n", "\tif c.refusal == nil {\n\t\treturn true\n"), pkg: "internal/listen", test: "TestEveryRefusalOfHTTP1IsInOurWords"},
		{name: "a fault behind a request ends it",
			edits: one(unheard, "case len(p) == 1 && c.refusal != nil:", "case len(p) == 0:"), pkg: "internal/listen", test: "TestAFaultBehindARequestDoesNotEndIt"},
		{name: "who is still sending gets a reset for a refusal",
			edits: one(unread, "\t\tPart(c.Conn, nil)\n", "\t\t_ = c.Conn.Close()\n"), pkg: "internal/listen", test: "TestWhoIsStillSendingReadsItsRefusalAndNoReset"},
		{name: "slow bodies take all memory",
			edits: one("proxy/body.go", "> ex.p.mostKept {", "> ex.p.mostKept && more < 0 {"), pkg: "proxy", test: "TestSlowBodiesKeepABoundedMemoryAndOthersAreStreamed"},
	}
}

// wholeDoorMutants have to be noticed from outside.
func wholeDoorMutants() []mutant {
	return []mutant{
		{name: "a writer has the namespace of the route", edits: namespaceOfTheRoute, pkg: "e2e", test: "TestTwoTenantsWithCertificatesShareIdsAndNothingElse", whole: true},
	}
}
