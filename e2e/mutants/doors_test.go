package mutants_test

const (
	whoCalls  = "control/access.go"
	whoWrites = "proxy/access.go"
	whoIs     = "internal/auth/principals.go"
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
	}
}

// wholeDoorMutants have to be noticed from outside.
func wholeDoorMutants() []mutant {
	return []mutant{
		{name: "a writer has the namespace of the route", edits: namespaceOfTheRoute, pkg: "e2e", test: "TestTwoTenantsWithCertificatesShareIdsAndNothingElse", whole: true},
	}
}
