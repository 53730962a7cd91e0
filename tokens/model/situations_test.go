//go:build linux

package model

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// situations are what some run has to come to: a model in which they never arise would hold for nothing.
var situations = []struct {
	name, condition string
	keyed           bool
}{
	{"a write is vetoed while its successor is sent", "stage[0] == vetoed && stage[1] == sending", false},
	{"a write waits for one that was sent whole", "stage[0] == sent && asleep[1]", false},
	{"a write waits for one that was cut, has lost its connection, and is being worked on", "stage[0] == cut && closed[0] && working[0] && asleep[1]", false},
	{"a write that was answered early was cut", "stage[0] == cut && closed[0] && reply[0] == applied && !whole[0]", false},
	{"a newer write is sent after an older one was begun", "begun[0] && sentMost == 2", false},
	{"what a dead process has sent is not read when a write waits in the next", "crashes == 1 && network[0] && asleep[1]", false},
	{"the disk is ahead of the memory, and an older write is sent", "up && loaded && diskFloor > floor && stage[0] == sending", false},
	{"nothing is served, and a write is under way", "failed && stage[0] == sent", false},
	{"a claim and the start of a write are decided together", "batch ?? [0] && batch ?? [2] && op[0] == start", true},
	{"a key is refused that a dead process left in flight", "crashes == 1 && diskKey == inflight && op[1] == refused", true},
	{"a key is refused that was applied", "diskKey == applied && op[1] == refused", true},
	{"a key that was declined is sent again", "decided[0] && executed == 0 && diskAttempt == 1 && stage[1] == sending", true},
}

func TestTheModelComesToWhatMatters(t *testing.T) {
	for _, b := range []bounds{
		{"KEYED=0", "CLAIMS=0", "CRASHES=1", "FAULTS=1"},
		{"KEYED=1", "CLAIMS=1", "CRASHES=1", "FAULTS=0"},
	} {
		keyed := b[0] == "KEYED=1"
		var options []string
		for i, s := range situations {
			if s.keyed == keyed {
				options = append(options, fmt.Sprintf(":: d_step { %s -> assert(%d < 0) }", s.condition, i))
			}
		}
		// All errors are looked for: each is a situation that was met.
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "situations.pml"), []byte(strings.Join(options, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		out, _ := verify(t, dir, append(b, "SITUATIONS"), false, "-n", "-c0")
		for i, s := range situations {
			if s.keyed == keyed && !strings.Contains(out, fmt.Sprintf(": assertion violated (%d<0)", i)) {
				t.Errorf("no run comes to this: %s", s.name)
			}
		}
	}
}
