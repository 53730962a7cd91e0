package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestTheGraceLeavesRoomForALostRenewal(t *testing.T) {
	for _, c := range []struct {
		ttl, grace, want time.Duration
		given, warned    bool
	}{
		{30 * time.Second, defaultGrace, defaultGrace, false, false},
		{30 * time.Second, time.Minute, 9 * time.Second, true, true},
		{10 * time.Second, defaultGrace, 3 * time.Second, false, false},
		{10 * time.Second, 0, 0, true, false},
		{time.Second, defaultGrace, 400*time.Millisecond - time.Second/3, false, false},
	} {
		var errs bytes.Buffer
		w := &wrapping{runOptions: runOptions{job: "j", command: []string{"true"}, proxy: defaultProxy, ttl: c.ttl, grace: c.grace}, stderr: &errs}
		if err := w.check(c.given); err != nil || w.grace != c.want {
			t.Errorf("ttl %v, grace %v: %v, %v", c.ttl, c.grace, w.grace, err)
		}
		if warned := strings.Contains(errs.String(), "--grace is shortened"); warned != c.warned {
			t.Errorf("ttl %v, grace %v: said %q", c.ttl, c.grace, errs.String())
		}
		// TERM comes late enough for a second try of the renewal, KILL a margin before anybody else can have the job.
		if term := c.ttl - margin(c.ttl) - w.grace; term < c.ttl*3/5 {
			t.Errorf("ttl %v, grace %v: TERM %v after the last renewal", c.ttl, c.grace, term)
		}
	}
}

func TestShellsCompleteTheCommandsOfALease(t *testing.T) {
	for _, args := range [][]string{{"lease", ""}, {"lease", "claim", "--"}, {"run", "--"}} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), append([]string{"__complete"}, args...), &out, &errs); code != 0 || !strings.Contains(out.String(), "claim\t") && !strings.Contains(out.String(), "--ttl") {
			t.Errorf("%v: exit code %d\n%s%s", args, code, out.String(), errs.String())
		}
	}
}
