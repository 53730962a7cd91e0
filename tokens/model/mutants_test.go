//go:build linux

package model

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What spin has to say of a mutant: the assertion that fails, or that a run ends where it must not.
const (
	orderBroken   = "assertion violated (gen[w]>=sentMost)"
	workBroken    = "assertion violated  !((working[j]&&(gen[j]<gen[1])))"
	promiseBroken = "assertion violated (gen[w]>=promised)"
	notDurable    = "assertion violated (diskFloor>=gen[w])"
	keyNotDurable = "assertion violated ( !(1)||(diskKey!=6))"
	forgotten     = "assertion violated (v==older)"
	cutWhole      = "assertion violated  !(whole[i])"
	twice         = "assertion violated ((executed==1)||(0&&doubt))"
	twiceKnown    = "assertion violated ((executed==1)||(1&&doubt))"
	stuck         = "invalid end state"
)

// mutants are the safeguards of the model, each with what stands for it in the code, and how spin notices that it is gone.
var mutants = []struct {
	core      bool // it is tried in every run of the tests
	safeguard string
	file      string // relative to the module's root
	line      string // of the file, as it stands there
	bounds    bounds
	fault     string
}{
	{true, "GATE", "tokens/attempt.go", "if at.stage != stageAdmitted {", quiet(), orderBroken},
	{true, "BARRIER", "tokens/attempt.go", "if j.older == 0 && quiet <= 0 {", quiet(), workBroken},
	{false, "REGISTRATION_UNDER_THE_LOCK", "tokens/attempt.go", "at.register(s, j)\n\t\t\t\ts.mu.Unlock()", quiet(), orderBroken},
	{false, "JUDGING_AFTER_THE_WAIT", "tokens/attempt.go", "checkedLive, checkedKey = false, false\n\t}", bounds{"CLAIMS=1", "CRASHES=0", "FAULTS=0"}, promiseBroken},
	{false, "CUT_IS_WAITED_FOR", "tokens/overtake.go", "cut = append(cut, at.Cutter)\n\t\t\t\tj.older++", quiet(), orderBroken},
	{false, "CUT", "tokens/authority.go", "c.Cut()", quiet("PATIENT=1"), stuck},
	{true, "WAKE", "tokens/attempt.go", "if j.older == 0 {\n\t\t\t\tj.wake()", quiet("PATIENT=1"), stuck},
	{false, "SENT_WHOLE_BEFORE_THE_LAST_WRITE", "proxy/conn.go", "s.Watcher.SentWhole()\n\t}\n\treturn c.touch(s, b)", quiet(), cutWhole},
	{false, "RESET", "proxy/conn.go", "if err := tcp.SetLinger(0); err != nil {", quiet(), workBroken},
	{false, "ABORT", "proxy/serve.go", "ex.send.Abort()\n\tex.send.Quiesce()\n\tswitch {", quiet(), workBroken},
	{true, "LINGER", "proxy/serve.go", "time.AfterFunc(ex.rt.Linger, func() { authority.Settle(at, o) })", quiet(), workBroken},
	{false, "LINGER_AFTER_AN_EARLY_REPLY", "proxy/reply.go", "ex.settleClosed(o)", quiet(), workBroken},
	{false, "ARRIVED", "proxy/reply.go", "ex.send.Rests(lastWriteTime) && ex.send.Arrived() && ex.stopped() == nil", quiet(), workBroken},
	{true, "LINGER_AFTER_A_RESTART", "tokens/attempt.go", "return time.Until(a.quietUntil)", bounds{"CLAIMS=0", "CRASHES=1", "FAULTS=0"}, workBroken},
	{true, "COMMIT_BEFORE_THE_FLOOR_COUNTS", "tokens/authority.go", "d.Version, err = a.store.Commit(ctx, d.change(j.key))", quiet("GENERATIONS=2,2"), notDurable},
	{false, "CLAIM_RAISES", "tokens/rules.go", "return r.raised(g, now, c.Trace), false, nil", bounds{"CLAIMS=1", "CRASHES=0", "FAULTS=0"}, promiseBroken},
	{true, "REGISTRATION_BEFORE_OVERTAKING", "tokens/authority.go", "op.published(s, j)", bounds{"KEYED=1", "CLAIMS=1", "CRASHES=0", "FAULTS=0"}, forgotten},
	{false, "KEY_BEFORE_SENDING", "tokens/keyed.go", "d.setWrite(key, w)\n\t}\n}", quiet("KEYED=1"), keyNotDurable},
	{false, "DEAD_IS_UNKNOWN", "tokens/key.go", "if had.free() {\n\t\treturn nil", bounds{"KEYED=1", "CLAIMS=0", "CRASHES=1", "FAULTS=0"}, twice},
	{true, "RECORD_BEFORE_SETTLING", "proxy/reply.go", "\t\t\tex.record(s)\n\t\t\tif capture {", quiet("KEYED=1", "FORWARD=1", "GENERATIONS=1,1"), twiceKnown},
	{false, "LIVE_BEFORE_THE_COMMIT", "tokens/keyed.go", "a.live.Store(id, nil)\n\t\t\tat.begin(d, id, now)", quiet("KEYED=1", "FORWARD=1", "GENERATIONS=1,1"), twiceKnown},
}

// TestSpinRefutesTheModelWithoutAnyOfItsSafeguards tries all of them if FENCEPROXY_MUTANTS is set, else the core.
func TestSpinRefutesTheModelWithoutAnyOfItsSafeguards(t *testing.T) {
	every := os.Getenv("FENCEPROXY_MUTANTS") != ""
	for _, m := range mutants {
		if !every && !m.core {
			continue
		}
		t.Run(m.safeguard, func(t *testing.T) {
			s := search(t, append(bounds{"WITHOUT=" + m.safeguard}, m.bounds...), false)
			switch {
			case s.fault == "":
				t.Errorf("the model holds without it: %s states", s.states)
			case s.fault != m.fault:
				t.Errorf("noticed by %q, want %q\n%s", s.fault, m.fault, s.trail())
			}
		})
	}
}

func TestEachSafeguardOfTheModelIsInTheCodeAndInTheTest(t *testing.T) {
	model, err := os.ReadFile("fence.pml")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(model), "/* The safeguards")
	list, _, _ = strings.Cut(list, "#ifndef WITHOUT")
	if n := strings.Count(list, "#define "); n != len(mutants) {
		t.Errorf("the model has %d safeguards, and %d are taken away", n, len(mutants))
	}
	for _, m := range mutants {
		if !strings.Contains(list, "#define "+m.safeguard+" ") {
			t.Errorf("the model has no safeguard %s", m.safeguard)
		}
		code, err := os.ReadFile(filepath.Join("..", "..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(code), m.line); n != 1 {
			t.Errorf("%s: %s has %d times what it stands for; see whether the model still follows the code:\n%s", m.safeguard, m.file, n, m.line)
		}
	}
}
