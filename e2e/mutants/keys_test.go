package mutants_test

import "github.com/fenceproxy/fenceproxy/e2e/overlay"

const (
	key        = "tokens/key.go"
	keyed      = "tokens/keyed.go"
	keyedProxy = "proxy/keyed.go"
	reply      = "proxy/reply.go"
)

// The mutants of keys, each beside the promise that it breaks.

var (
	notRecordedFirst = one(keyed, "at.records[key] = w\n\t\td.setWrite(key, w)\n", "at.records[key] = w\n\t\td.writes[key] = w\n")

	deadCountAsFree = one(key, "if had.free() {\n\t\treturn nil", "if had.free() || had.State == WriteInFlight && !live(had.Attempt) {\n\t\treturn nil")

	unknownFreedAtRestart = one(keyed, "\t\tif ref := judgeKey(d.writes[key], key,",
		"\t\tif w := d.writes[key]; w.State == WriteUnknown && w.Attempt[:len(a.boot)] != a.boot {\n\t\t\tcontinue\n\t\t}\n\t\tif ref := judgeKey(d.writes[key], key,")

	keyAfterBarrier = one(attempt, "if at.durable() && !checkedKey && (", "if at.durable() && !checkedKey && at.Key == \"\" && (")

	heldJobsArePurged = one(key, "&& !leased", "&& (!leased || true)")

	unknownIsPurged = []overlay.Edit{
		{File: key, Old: "if had.State != WriteUnknown {\n\t\thad.Expires", New: "if had.State != \"\" {\n\t\thad.Expires"},
		{File: key, Old: "return !w.IsOpen() && w.Expires", New: "return w.Expires"},
	}
)

func keyMutants() []mutant {
	return []mutant{
		{core: true, name: "a keyed write is sent before its record is durable",
			edits: notRecordedFirst, pkg: "proxy", test: "TestNothingIsSentBeforeTheAttemptIsDurable"},
		{core: true, name: "an attempt that nobody tracks any more leaves its key free",
			edits: deadCountAsFree, pkg: "tokens", test: "TestAnOutcomeThatCanNotBeRecordedIsUnknownNeverFree"},
		{name: "the fingerprint is ignored",
			edits: one(key, "return f.Head != g.Head || f.Known()", "return f.Head == \"\" && f.Known()"),
			pkg:   "tokens", test: "TestAnotherRequestUnderTheSameKeyIsRefusedWhateverBecameOfTheFirst"},
		{name: "the body is no part of the fingerprint",
			edits: one(key, "f.Known() && g.Known() && f.Body != g.Body", "f.Known() && g.Known() && false"),
			pkg:   "proxy", test: "TestAKeyBelongsToOneRequest"},
		{name: "a streamed body is not compared before a replay",
			edits: one(keyedProxy, "had.Fingerprint.Known() && digest != had.Fingerprint.Body", "had.Fingerprint.Known() && digest == \"\""),
			pkg:   "proxy", test: "TestAStreamedUploadIsRecognisedAgain"},
		{name: "a multipart boundary is a part of the body",
			edits: one("proxy/digest.go", "strings.HasPrefix(t, \"multipart/\") && b != \"\"", "strings.HasPrefix(t, \"multipart/\") && b == \"\""),
			pkg:   "proxy", test: "TestMultipartBodiesThatDifferInTheirBoundaryAreTheSame"},
		{name: "a replay carries cookies",
			edits: one(keyedProxy, "\"Set-Cookie\", \"Set-Cookie2\", ", ""),
			pkg:   "proxy", test: "TestARepeatedKeyIsAnsweredWithTheFirstReplyAcrossGenerations"},
		{name: "the keys of a held job are purged",
			edits: heldJobsArePurged, pkg: "tokens", test: "TestASweepForgetsOnlyWhatIsSettledExpiredAndOfNoHeldJob"},
		{name: "what is unknown is purged",
			edits: unknownIsPurged, pkg: "tokens", test: "TestASweepForgetsOnlyWhatIsSettledExpiredAndOfNoHeldJob"},
	}
}

// wholeKeyMutants are noticed from outside.
func wholeKeyMutants() []mutant {
	return []mutant{
		{name: "program that sends a keyed write before its record is durable", edits: notRecordedFirst,
			pkg: "e2e", test: "TestAWriteKilledWhileTheUpstreamIsAtWorkIsUnknownAndListed", whole: true},
		{name: "program that sends a keyed write before its record is durable, to many callers at once", edits: notRecordedFirst,
			pkg: "e2e", test: "TestOfFiftyIdenticalWritesAtOnceOneIsExecuted", whole: true},
		{name: "program that frees the keys of a dead process", edits: deadCountAsFree,
			pkg: "e2e", test: "TestAWriteKilledWhileTheUpstreamIsAtWorkIsUnknownAndListed", whole: true},
		{name: "program that frees unknown keys at a restart", edits: unknownFreedAtRestart,
			pkg: "e2e", test: "TestWhatTheUpstreamAnswersDecidesOnItsKey", whole: true},
		{name: "program that judges the key after older attempts were waited for", edits: keyAfterBarrier,
			pkg: "e2e", test: "TestADuplicateOfAnOlderAttemptDoesNotWaitForIt", whole: true},
		{name: "program that answers before the outcome is durable",
			edits: one(reply, "\t\t\tex.record(s)\n\t\t\tif capture {", "\t\t\tgo ex.record(s)\n\t\t\tif capture {"),
			pkg:   "e2e", test: "TestAWriteKilledBeforeItsOutcomeIsRecordedIsUnknown", troubled: true},
		{name: "program that settles an attempt before its outcome is durable",
			edits: one(reply, "\t\t\tex.record(s)\n\t\t\tif capture {",
				"\t\t\tif sentWhole {\n\t\t\t\tex.p.authority.Settle(&ex.attempt, ex.outcome)\n\t\t\t}\n\t\t\tex.record(s)\n\t\t\tif capture {"),
			pkg: "e2e", test: "TestAReportWaitsForTheRecordOfAnOutcome", troubled: true},
		{name: "program that purges the keys of held jobs", edits: heldJobsArePurged,
			pkg: "e2e", test: "TestAKeyIsForgottenAfterItsRetentionAndThatIsCounted", troubled: true},
		{name: "program that purges what is unknown", edits: unknownIsPurged,
			pkg: "e2e", test: "TestAKeyIsForgottenAfterItsRetentionAndThatIsCounted", troubled: true},
	}
}
