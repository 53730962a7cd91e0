package mutants_test

import (
	"slices"

	"github.com/fenceproxy/fenceproxy/e2e/overlay"
)

const (
	attempt   = "tokens/attempt.go"
	overtake  = "tokens/overtake.go"
	authority = "tokens/authority.go"
	lease     = "tokens/lease.go"
	rules     = "tokens/rules.go"
	committer = "tokens/badgerstore/committer.go"
	inspect   = "tokens/badgerstore/inspect.go"
)

// one is an edit of one place.
func one(file, old, new string) []overlay.Edit {
	return []overlay.Edit{{File: file, Old: old, New: new}}
}

// The mutants, each beside the promise that it breaks.

var (
	barrierRemoved = one(attempt, "if j.older == 0 && quiet <= 0 {", "if quiet <= 0 {")

	gateAlwaysTrue = one(attempt, "\tif at.stage != stageAdmitted {\n\t\treturn false\n\t}\n\tat.stage = stageSending\n",
		"\tif at.stage == stageAdmitted {\n\t\tat.stage = stageSending\n\t}\n")

	claimRaisesNoFloor = one(rules, "return r.raised(g, now, c.Trace), false, nil", "return r, false, nil")

	abortWithoutReset = one("proxy/send.go", "\tif c != nil {\n\t\tc.reset(s)\n\t}\n", "\t_ = c\n")

	lostTailOpens = one(inspect, "case f.last < f.remembered.sequence && !f.behind():", "case f.last > 1<<62:")

	closedPolitely = one("proxy/conn.go", "\tif err := tcp.SetLinger(0); err != nil {\n\t\treturn nil, err\n\t}\n", "")

	watcherCutRemoved = one(overtake, "at = at.next {\n\t\tif at.Generation < floor {\n\t\t\tcut = append(cut, at.Cutter)\n\t\t}\n\t}\n",
		"at = at.next {\n\t}\n")
)

func mutants() []mutant {
	return slices.Concat(authorityMutants(), proxyMutants(), storeMutants(), keyMutants(), doorMutants(), reloadMutants(), deliveryMutants())
}

func authorityMutants() []mutant {
	return []mutant{
		{core: true, name: "the barrier is removed: a write is admitted although older attempts live",
			edits: barrierRemoved, pkg: "tokens", test: "TestANewerWriteWaitsUntilTheOlderOneIsSettled"},
		{core: true, name: "the gate lets everything through",
			edits: gateAlwaysTrue, pkg: "tokens", test: "TestATakeoverVetoesWhatHasNotPassedTheGateAndDoesNotWaitForIt"},
		{core: true, name: "the gate lets everything through, as seen from the connection",
			edits: gateAlwaysTrue, pkg: "proxy", test: "TestTheGateAloneKeepsAVetoedWriteOffTheWire"},
		{core: true, name: "a claim does not raise the floor",
			edits: claimRaisesNoFloor, pkg: "tokens", test: "TestAClaimRaisesTheFloorBeforeItAnswers"},
		{core: true, name: "a newer generation is admitted without raising the floor",
			edits: one(attempt, "if v == verdictRaise {\n\t\t\ts.mu.Unlock()", "if v > verdictRaise {\n\t\t\ts.mu.Unlock()"),
			pkg:   "tokens", test: "TestARaisedFloorIsDurableBeforeTheWriteIsAdmitted"},
		{core: true, name: "a raised floor counts before it is durable",
			edits: one(authority, "\t\td.Version, err = a.store.Commit(", "\t\ta.publish(s, j, old.Version, d, batch)\n\t\td.Version, err = a.store.Commit("),
			pkg:   "tokens", test: "TestARaisedFloorIsDurableBeforeTheWriteIsAdmitted"},
		{core: true, name: "a commit of unknown outcome does not close the authority",
			edits: one(authority, "\t\t\tif a.info.Exclusive {\n\t\t\t\ta.fail(err)\n\t\t\t}\n", ""),
			pkg:   "tokens", test: "TestAnUnknownOutcomeClosesTheAuthorityUntilARestart"},
		{name: "a body that is being received is not cut",
			edits: watcherCutRemoved, pkg: "tokens", test: "TestAWatchedBodyIsCutByATakeoverAndNobodyWaitsForIt"},
		{core: true, name: "an attempt that has not passed the gate is not vetoed",
			edits: one(overtake, "\t\t\t\tat.stage = stageVetoed\n\t\t\t\tj.attempts.remove(at)\n", "\t\t\t\tj.older++\n"),
			pkg:   "tokens", test: "TestATakeoverVetoesWhatHasNotPassedTheGateAndDoesNotWaitForIt"},
		{core: true, name: "an attempt that is cut counts as settled before its connection is closed",
			edits: []overlay.Edit{
				{File: overtake, Old: "\t\t\t\tcut = append(cut, at.Cutter)\n\t\t\t\tj.older++\n", New: "\t\t\t\tcut = append(cut, at.Cutter)\n"},
				{File: attempt, Old: "if at.Generation < floor {\n\t\t\tj.older--", New: "if at.Generation < floor && at.stage != stageCut {\n\t\t\tj.older--"},
			},
			pkg: "tokens", test: "TestATakeoverCutsWhatIsBeingSentAndWaitsForItsEnd"},
		{name: "the attempts of a dead process do not linger",
			edits: one(attempt, "return time.Until(a.quietUntil)", "return 0"),
			pkg:   "tokens", test: "TestTheFirstWritesAfterARestartLetTheDeadOnesLinger"},
		{name: "a lease gets no grace after a restart",
			edits: one(lease, "return max(l.Until, opened+a.opt.RestartGrace.Milliseconds())", "return l.Until"),
			pkg:   "tokens", test: "TestALeaseThatRanOutWhileTheProxyWasDownIsKeptForAGrace"},
	}
}

func proxyMutants() []mutant {
	return []mutant{
		{core: true, name: "an aborted write keeps its connection",
			edits: abortWithoutReset, pkg: "proxy", test: "TestAbortSentCutsWhatWasSentWhole"},
		{core: true, name: "a write may move to a second connection after it was sent",
			edits: one("proxy/send.go", "ok := s.conn == nil || !s.Once || !s.sent && !s.writing", "ok := true"),
			pkg:   "proxy", test: "TestAWriteIsNeverSentTwiceByTheTransport"},
		{core: true, name: "the exchange does not ask the gate",
			edits: one("proxy/exchange.go", "return !ex.fenced || ex.attempt.Gate()", "return true"),
			pkg:   "proxy", test: "TestANewerWriteWaitsForAnOlderOneThatWasSentWhole"},
		{core: true, name: "a request over HTTP/2 does not ask its gate",
			edits: one("proxy/frameconn.go", "\t\tif err := s.permit(c.gateConn); err != nil {\n\t\t\treturn err\n\t\t}\n\t\tc.markWhole()\n", "\t\tc.markWhole()\n"),
			pkg:   "proxy", test: "TestTheGateAloneKeepsAVetoedRequestOffHTTP2"},
		{name: "a request over HTTP/2 counts as sent whole after its last byte",
			edits: one("proxy/frameconn.go", "\t\ts.Watcher.SentWhole()\n", "\t\tdefer s.Watcher.SentWhole()\n"),
			pkg:   "proxy", test: "TestTheLastByteIsWrittenAfterTheRequestCountsAsSentWhole"},
		{name: "a refusal counts for another request on the connection",
			edits: one("proxy/send.go", "s.refused = s.refused || s.conn == c", "s.refused = true"),
			pkg:   "proxy", test: "TestARefusalCountsForTheRequestThatItWasMeantFor"},
		{core: true, name: "a gRPC call is settled by its head",
			edits: one("proxy/reply.go", "if ex.fenced && ex.grpc && res.StatusCode == http.StatusOK {", "if false {"),
			pkg:   "proxy", test: "TestAUnaryCallIsSettledByItsStatus"},
		{name: "a gRPC call that was answered early is settled while more of it can go out",
			edits: one("proxy/grpc.go", "\t\tex.endUpload()\n\t\tex.send.Abort()\n\t\tex.send.Quiesce()\n", ""),
			pkg:   "proxy", test: "TestACallThatWasAnsweredEarlyIsBrokenOffBeforeItIsSettled"},
		{name: "a caller is told to continue before all was judged",
			edits: one("proxy/serve.go", `if ex.r.Header["Expect"] != nil && ex.buffers()`, "if false"),
			pkg:   "proxy", test: "TestTheFloorIsDurableBeforeThe100"},
		{name: "what comes after the end of a drain goes on",
			edits: one("proxy/register.go", "if g.ended.Load() {", "if false {"),
			pkg:   "proxy", test: "TestTheEndReachesWhatIsUnderWayAndWhatComesAfterIt"},
		{name: "the request behind a write is not looked behind either",
			edits: one("proxy/exchange.go", "ex.hushed.Mute(false)", "_ = ex.hushed"),
			pkg:   "proxy", test: "TestAReadBehindAWriteStillEndsWithItsCaller"},
		{name: "a write that may wait does not notice that its caller hung up",
			edits: one("proxy/body.go", "if !ex.attempt.Calm || ", "if "),
			pkg:   "proxy", test: "TestAWriteThatWaitsForOlderOnesStillEndsWithItsCaller"},
		{name: "a plain head may announce a connection's end",
			edits: one("proxy/head.go", `case "Connection", "Transfer-Encoding",`, `case "Transfer-Encoding",`),
			pkg:   "proxy", test: "TestAPlainHeadIsReadAsNetHTTPReadsIt"},
		{core: true, name: "a tunnel counts as sent whole",
			edits: one("proxy/exchange.go", "if ex.fenced && !ex.upgrade {", "if ex.fenced {"),
			pkg:   "proxy", test: "TestATakeoverCutsAWebSocket"},
		{name: "a tunnel goes on after an abort",
			edits: one("proxy/send.go", "case s.aborted || s.vetoed || s.over:", "case s.vetoed || s.over:"),
			pkg:   "proxy", test: "TestNoByteOfATunnelGetsPastAnAbort"},
		{name: "every upgrade goes through where one is allowed",
			edits: one("proxy/upgrade.go", "\tcase !isWebSocket(h):\n\t\treturn errNotWebSocket\n", ""),
			pkg:   "proxy", test: "TestEveryOtherUpgradeIsRefused"},
		{name: "observing lets through what is not the fence's to refuse",
			edits: one("proxy/serve.go", "refused != nil && ex.rt.Observe && refused.byFence()", "refused != nil && ex.rt.Observe"),
			pkg:   "proxy", test: "TestObservingOpensNoDoor"},
	}
}

func storeMutants() []mutant {
	return []mutant{
		{core: true, name: "commits are not synced",
			edits: one(committer, "return s.syncLog()", "return s.followLog()"),
			pkg:   "tokens/badgerstore", test: "TestACommitIsNotAcknowledgedBeforeItsLogIsSynced"},
		{name: "the log before the newest is synced",
			edits: one("tokens/badgerstore/log.go", "number := s.log + 1", "number := s.log + 1000"),
			pkg:   "tokens/badgerstore", test: "TestTheLogThatIsSyncedHoldsTheBatchAlsoWhenItTurnsOver"},
		{core: true, name: "a commit is acknowledged before it is written",
			edits: one(committer, "\tif err := s.commit(changes); err != nil {\n",
				"\tfor _, c := range changes {\n\t\tc.done <- answer{version: tokens.Version(s.sequence + 1)}\n\t}\n\terr := s.commit(changes)\n\tchanges = nil\n\tif err != nil {\n"),
			pkg: "tokens/badgerstore", test: "TestAFailedCommitClosesTheStoreForWrites"},
		{core: true, name: "a commit is acknowledged before its number is remembered",
			edits: one(committer, "errors.Join(err, <-remembered)", "errors.Join(err)"),
			pkg:   "tokens/badgerstore", test: "TestACommitWhoseNumberCouldNotBeRememberedIsNotAcknowledged"},
		{name: "a failed commit does not close the store",
			edits: one(committer, "s.commit(changes); err != nil {\n\t\ts.breakOff(err)\n", "s.commit(changes); err != nil {\n"),
			pkg:   "tokens/badgerstore", test: "TestAFailedCommitClosesTheStoreForWrites"},
		{core: true, name: "a store that lost its tail opens",
			edits: lostTailOpens, pkg: "tokens/badgerstore", test: "TestARefusalNamesWhatWasLostAndChangesNothing"},
		{name: "a hole before the newest log is overlooked",
			edits: one(inspect, "if sp.first > last+1 {", "if sp.first > 1<<62 {"),
			pkg:   "tokens/badgerstore", test: "TestAHoleBeforeTheNewestLogIsNoticed"},
		{name: "the store's time may fall back across a restart",
			edits: one("tokens/badgerstore/time.go", "if base.Before(atLeast) {", "if base.Before(time.Time{}) {"),
			pkg:   "tokens/badgerstore", test: "TestTheStoresTimeAcrossReopening"},
		{name: "a step of the wall clock moves the store's time",
			edits: one("tokens/badgerstore/time.go", "return c.base.Add(max(0, c.clock.Elapsed()-c.opened))", "return c.clock.Wall()"),
			pkg:   "tokens/badgerstore", test: "TestTheStoresTimeIgnoresStepsOfTheWallClockWhileOpen"},
		{name: "a full disk is not noticed",
			edits: one("tokens/badgerstore/space.go", "if err == nil && n < s.opt.MinFree {", "if err == nil && n < 0 {"),
			pkg:   "tokens/badgerstore", test: "TestCommitsAreRefusedWhileSpaceIsLowAndTakenAgainAfterwards"},
		{name: "a salvage keeps the epoch",
			edits: one("tokens/badgerstore/salvage.go", "m.Format, m.Epoch = formatVersion, epoch+1", "m.Format, m.Epoch = formatVersion, epoch"),
			pkg:   "tokens/badgerstore", test: "TestASalvageKeepsWhatIsReadableInANewEpoch"},
	}
}

// wholeMutants are noticed from outside, by the tests of the built program.
func wholeMutants() []mutant {
	return slices.Concat(wholeKeyMutants(), wholeDoorMutants(), wholeReloadMutants(), []mutant{
		{name: "program without the barrier", edits: barrierRemoved,
			pkg: "e2e", test: "TestTheNewerWriteWaitsForTheOlderOnesAnswer", whole: true},
		{name: "program without the barrier, before a store for S3", edits: barrierRemoved,
			pkg: "e2e/peers", test: "TestATakeoverWaitsForACompletion", whole: true},
		{name: "program that resets a stream right behind its answer",
			edits: one("proxy/answer.go", "if ex.r.ProtoMajor > 1 && (part || !ex.received()) && ex.rc.Flush() == nil {", "if ex.r.ProtoMajor > 2 {"),
			pkg:   "e2e", test: "TestARefusedCallerOfHTTP2HasItsAnswerBeforeItsStreamIsReset", whole: true},
		{name: "program without the barrier under load", edits: barrierRemoved,
			pkg: "e2e", test: "TestTheOrderHoldsUnderLoadWithoutACrash", whole: true},
		{name: "program whose later claims raise no floor",
			edits: one(rules, "return r.raised(g, now, c.Trace), false, nil", "if r.Floor > 0 {\n\t\treturn r, false, nil\n\t}\n\treturn r.raised(g, now, c.Trace), false, nil"),
			pkg:   "e2e", test: "TestAStaleWriteIsRefusedBeforeTheSuccessorsFirstWrite", whole: true},
		{name: "program that judges a stale write only after its body was read",
			edits: one("proxy/serve.go", "\t\tif err := ex.watch(ctx); err != nil {\n\t\t\tex.rt.metrics.Admission(time.Since(ex.start).Seconds(), ex.traceID)\n\t\t\treturn nil, whole, ex.judged(err)\n\t\t}\n\t\tdefer ex.unwatch()\n", ""),
			pkg:   "e2e", test: "TestAStaleWriteIsRefusedBeforeItsBodyIsRead", whole: true},
		{name: "program that closes the connection of a cut write politely", edits: closedPolitely,
			pkg: "e2e", test: "TestWhatTheKernelHoldsOfACutWriteIsDropped", whole: true},
		{name: "program that dies politely", edits: closedPolitely,
			pkg: "e2e", test: "TestWhatTheKernelHoldsOfADeadProcessIsDropped", whole: true},
		{name: "program that opens a store which lost its tail", edits: lostTailOpens,
			pkg: "e2e", test: "TestALostTailOfTheLogIsRefused", whole: true},
	})
}
