package mutants_test

import (
	"slices"

	"github.com/fenceproxy/fenceproxy/e2e/overlay"
)

const (
	conn      = "proxy/conn.go"
	call      = "proxy/grpc.go"
	frameConn = "proxy/frameconn.go"
	arrival   = "proxy/arrival.go"
)

// deliveryMutants break what is known of a request on its last metre, or keep what is over. Where they
// ask the kernel it has to be Linux.
func deliveryMutants() []mutant {
	carries, settled := "TestAConnectionOfWhichOurKernelHoldsARequestCarriesNoOther", "TestAnAnsweredWriteIsSettledWhenOurKernelHoldsNothingOfIt"
	lost, frames := "TestARequestThatWasLostWithItsConnectionHasNotArrived", "TestFramesBehindARequestNeitherHideItNorCountForIt"
	next, still := "TestARequestThatTheUpstreamHasLeavesItsConnectionToTheNext", "TestWhatTheServerMayStillBeWritingIsNotUsedAgain"
	madeUp, framed := "TestAControlCallForAJobThatNobodyKnowsLeavesNothingBehind", "TestNoNameOverHTTP2LooksLikeFraming"
	return []mutant{
		{core: true, name: "a connection that holds a part of a request goes to the next one",
			edits: one(conn, "c.served && !c.arrived() {", "c.served && s == nil {"), pkg: "proxy", test: carries},
		{name: "a connection that holds a part of a request that is over goes to the next one",
			edits: one(conn, "c.served && !c.arrived() {", "c.request != nil && !c.arrived() {"), pkg: "proxy", test: carries},
		{core: true, name: "a write that was answered is settled while our kernel holds a part of it",
			edits: one(reply, "ex.send.Rests(lastWriteTime) && ex.send.Arrived()", "ex.send.Rests(lastWriteTime)"), pkg: "proxy", test: settled},
		{name: "a gRPC call is settled by its status while our kernel holds a part of it",
			edits: one(call, " && ex.send.Arrived()", ""), pkg: "proxy", test: settled},
		{name: "a gRPC call is settled by its status while its last bytes stand still",
			edits: one(call, " && ex.send.Rests(lastWriteTime)", ""), pkg: "proxy", test: "TestAWriteWhoseLastBytesStandStillIsNotSettledByItsReply"},
		{name: "a large request is not asked for either",
			edits: one(conn, "c.written()-c.begin <= lastSize", "c.written()-c.begin <= 1<<40"), pkg: "proxy", test: settled},
		{name: "a connection that is closed forgets what it has lost",
			edits: one(conn, "\tif !c.arrived() {\n\t\tc.lost = c.request\n\t}\n", ""), pkg: "proxy", test: lost},
		{name: "a client's close forgets what it has lost",
			edits: one(conn, "!c.closed\n\tc.closing()\n", "!c.closed\n\tc.closed = true\n\tc.wake()\n"), pkg: "proxy", test: lost},
		{name: "what was not taken counts as arrived",
			edits: one(conn, "\t\tc.lost = s\n", ""), pkg: "proxy", test: "TestARequestOfWhichAWriteFailedHasNotArrived"},
		{name: "what had arrived is lost with its connection",
			edits: one(conn, "return c.closed || c.written()", "return c.written()"), pkg: "proxy", test: next},
		{name: "what is written of a request counts for the one before",
			edits: one(conn, "(c.request != s || c.arrived())", "c.arrived()"), pkg: "proxy", test: next},
		{name: "frames count before they are written",
			edits: []overlay.Edit{
				{File: frameConn, Old: "\tn, err := c.Conn.Write(b)\n\tif c.records == nil {\n\t\tc.total.Add(int64(n))", New: "\tc.total.Add(int64(len(b)))\n\t_, err := c.Conn.Write(b)\n\tif c.total.Load() < 0 {\n"},
			}, pkg: "proxy", test: frames},
		{name: "frames behind a request are not counted",
			edits: one(frameConn, "c.total.Add(int64(n))", "c.total.Add(int64(0 * n))"), pkg: "proxy", test: frames},
		{name: "frames behind a request count for it",
			edits: one(conn, "int64(left) <= behind)", "int64(left) <= 0*behind)"), pkg: "proxy", test: frames},
		{name: "what is written while the kernel is asked counts as acknowledged",
			edits: one(conn, "\tleft, _, known, err := unread(c.tcp)\n\treturn", "\tleft, _, known, err := unread(c.tcp)\n\tbehind = c.written() - c.end.Load()\n\treturn"),
			pkg:   "proxy", test: "TestWhatIsWrittenWhileTheKernelIsAskedDoesNotHideARequest"},
		{name: "a large write reads before it looks at its connection",
			edits: slices.Concat(one("proxy/direct.go", "\t\t_, err = c.Write(out[:firstSize])\n", "\t\terr = nil\n"), one("proxy/direct.go", "c.rest(s, out[firstSize:])", "c.rest(s, out)")),
			pkg:   "proxy", test: "TestWhatCameWhileAConnectionWasIdleAnswersNobody"},
		{name: "the buffer of a connection is read into while a server still writes from it",
			edits: one("proxy/directbody.go", "b.end(err == nil) //", "b.end(true) //"), pkg: "proxy", test: still},
		{name: "the buffer of a reply is used again while a server still writes from it",
			edits: one(reply, "\t\t\t\tbuf = ex.leave(buf)\n", ""), pkg: "proxy", test: still},
		{name: "the buffer of a call is used again while a server still writes from it",
			edits: one(call, "gone, buf = time.Now(), ex.leave(buf)", "gone = time.Now()"), pkg: "proxy", test: still},
		{name: "an address that the store can not take is tried again without its reply",
			edits: one(keyedProxy, "s.Reply, s.Location = nil, \"\"", "s.Reply = nil"), pkg: "proxy", test: "TestAnAddressThatTheStoreCanNotTakeCostsNoOutcome"},
		{name: "an address that the store can not take costs the outcome",
			edits: one(keyedProxy, "(s.Reply != nil || s.Location != \"\")", "s.Reply != nil"), pkg: "proxy", test: "TestAnAddressThatTheStoreCanNotTakeCostsNoOutcome"},
		{name: "a control call for a made-up job stays in memory",
			edits: one(authority, "\tdefer a.forget(key)\n\treturn a.do(", "\treturn a.do("), pkg: "tokens", test: madeUp},
		{name: "a claim of a made-up job that came to nothing stays in memory",
			edits: one(lease, "\tdefer a.forget(c.Job) // if it came to nothing\n", ""), pkg: "tokens", test: madeUp},
		{name: "a verdict on a write of a made-up job stays in memory",
			edits: one(keyed, "\tdefer a.forget(key)\n\t// The record", "\t// The record"), pkg: "tokens", test: madeUp},
		{name: "a name over HTTP/2 looks like framing to some servers",
			edits: one(arrival, "as != name && (", "as == \"\" && ("), pkg: "proxy", test: framed},
		{name: "a trailer looks like framing to some servers",
			edits: one("proxy/header.go", "switch name = undisguised(name); name {", "switch name {"), pkg: "proxy", test: framed},
	}
}
