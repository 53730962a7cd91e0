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
		{name: "a stopping proxy closes its listener before its writes have ended",
			edits: one("cmd/fenceproxy/daemon.go", "clean := d.proxy.Drain(ctx)", "_ = d.data.Close()\n\tclean := d.proxy.Drain(ctx)"),
			pkg:   "cmd/fenceproxy", test: "TestARefusalOfADrainingProxySendsItsCallerAway"},
		{name: "a stopping proxy closes idle connections under its callers' requests",
			edits: one("cmd/fenceproxy/daemon.go", "\td.sendAway()\n", ""),
			pkg:   "cmd/fenceproxy", test: "TestACallerWithAnIdleConnectionIsRefusedAndNotCutOff"},
	}
}
