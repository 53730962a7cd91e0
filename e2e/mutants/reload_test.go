package mutants_test

// reloadMutants break what a reload and an orderly end promise.
func reloadMutants() []mutant {
	return []mutant{
		{name: "a reload drops the connections of routes that stay",
			edits: one("proxy/table.go", "return r.Sender == rt.Sender", "return false"),
			pkg:   "proxy", test: "TestConnectionsOfASenderThatStaysAreKeptAndOthersAreClosed"},
		{name: "the last request of a removed route leaves its connection open",
			edits: one("proxy/table.go", "if t.users.Add(-1) == 0 && t.retired.Load() {", "if t.users.Add(-1) < 0 {"),
			pkg:   "proxy", test: "TestTheConnectionOfARemovedRouteIsClosedWhenItsLastRequestEnds"},
		{name: "a reload takes over what needs a restart",
			edits: one("cmd/fenceproxy/reload.go", "[]error{err, cfg.CheckReload(before)}", "[]error{err}"),
			pkg:   "cmd/fenceproxy", test: "TestAReloadIsTakenOverAsAWholeOrNotAtAll"},
		{name: "a reload goes on without the files that are at fault",
			edits: one("cmd/fenceproxy/reload.go", "[]error{err, cfg.CheckReload(before)}", "[]error{cfg.CheckReload(before)}"),
			pkg:   "cmd/fenceproxy", test: "TestAReloadIsTakenOverAsAWholeOrNotAtAll"},
		{name: "who lost its authority keeps its open connection",
			edits: one("cmd/fenceproxy/guard.go", "if l.Admits(r.TLS) {", "if l != nil {"),
			pkg:   "cmd/fenceproxy", test: "TestAConnectionWhoseAuthorityIsGoneIsSentAway"},
		{name: "a tunnel outlives the access of its writer",
			edits: one("proxy/recheck.go", "case ex.caller != nil, ex.streamed && !ex.sent:", "case ex.caller == nil && ex.streamed && !ex.sent:"),
			pkg:   "proxy", test: "TestATunnelEndsWhenAReloadShutsItsWriterOut"},
		{name: "an upload outlives its route",
			edits: one("proxy/recheck.go", "case ex.caller != nil, ex.streamed && !ex.sent:", "case ex.caller != nil:"),
			pkg:   "proxy", test: "TestAnUploadIsCutWhenItsRouteIsGone"},
		{name: "a stream of replies outlives its route",
			edits: one("proxy/reply.go", "\tif stream {\n\t\tex.flow()\n\t}\n", ""),
			pkg:   "proxy", test: "TestAReplyWithoutALengthIsCutAndOneWithALengthIsNot"},
		{name: "a write that was sent whole is cut with its route",
			edits: one("proxy/recheck.go", "ex.streamed && !ex.sent:", "ex.streamed:"),
			pkg:   "proxy", test: "TestAWriteThatWasSentWholeEndsThoughItsRouteIsGone"},
		{name: "what begins to last after a reload is not looked at",
			edits: one("proxy/proxy.go", "\tp.doors.Store(1)\n", ""),
			pkg:   "proxy", test: "TestWhatBeginsToLastAfterAReloadIsLookedAtToo"},
		{name: "a stopping proxy closes its listener before its writes have ended",
			edits: one("cmd/fenceproxy/daemon.go", "clean := d.proxy.Drain(ctx)", "_ = d.data.Close()\n\tclean := d.proxy.Drain(ctx)"),
			pkg:   "cmd/fenceproxy", test: "TestARefusalOfADrainingProxySendsItsCallerAway"},
		{name: "a stopping proxy closes idle connections under its callers' requests",
			edits: one("cmd/fenceproxy/daemon.go", "\td.sendAway()\n", ""),
			pkg:   "cmd/fenceproxy", test: "TestACallerWithAnIdleConnectionIsRefusedAndNotCutOff"},
	}
}

// wholeReloadMutants have to be noticed from outside.
func wholeReloadMutants() []mutant {
	recheck := one("cmd/fenceproxy/reload.go", "\td.proxy.Recheck() // now that routes, principals and authorities are all of now\n", "")
	return []mutant{
		{name: "a reload looks at nothing that is under way", edits: recheck, pkg: "e2e", test: "TestAWebSocketEndsWhenAReloadTakesItsWritersAccessAway", whole: true},
		{name: "authorities are exchanged after what is under way was looked at",
			edits: append(one("cmd/fenceproxy/reload.go", "\td.senders = pool\n", "\td.senders = pool\n\td.proxy.Recheck()\n\ttime.Sleep(200 * time.Millisecond)\n"), recheck...),
			pkg:   "e2e", test: "TestAWebSocketEndsWhenAReloadTakesItsWritersAccessAway", whole: true},
	}
}
