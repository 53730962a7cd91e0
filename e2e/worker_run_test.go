package e2e_test

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// stubborn is a program that ignores TERM, and so does what it has started. The number of its group is its own.
const stubborn = `
	trap 'echo TERM' TERM
	(trap "" TERM INT HUP; while :; do sleep 0.02; done) &
	echo group $$
	while :; do sleep 0.02; done`

func TestRunHasEndedAllBeforeARivalCanHaveTheLease(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ttl, grace time.Duration
		told       bool // a shell that is told to stop has the time to say so
	}{
		"a short lease":            {2 * time.Second, 300 * time.Millisecond, false},
		"a grace":                  {6 * time.Second, time.Second, true},
		"more grace than there is": {6 * time.Second, time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			wire := newRelay(t, s.proxy.ControlURL())
			r := s.runs(wire.url(), "--job", "job", "--ttl", tt.ttl.String(), "--grace", tt.grace.String(),
				"--on-lost", "echo on-lost", "--", "sh", "-c", stubborn)
			group, _ := r.reads("group ")
			pid, err := strconv.Atoi(group)
			if err != nil {
				t.Fatal(err)
			}
			gone := dies(t, pid)
			wire.hang(true)
			// As soon as it may: the claim is in line while the lease runs out.
			got := s.reply(s.control.Claim(s.soon(), "job", "rival", long, daemon.Fields{"wait_ms": patience.Milliseconds()}))
			granted := time.Now()
			s.wantReply(got, 201, "")
			select {
			case died := <-gone:
				if died.After(granted) {
					t.Fatalf("the program died %v after the rival's claim", died.Sub(granted))
				}
				if !tt.told {
					t.Logf("the last process's end %v before the rival's claim", granted.Sub(died).Round(time.Millisecond))
					break
				}
				_, term := r.reads("TERM")
				t.Logf("TERM %v and the last process's end %v before the rival's claim", granted.Sub(term).Round(time.Millisecond),
					granted.Sub(died).Round(time.Millisecond))
				if !term.Before(died) {
					t.Error("there was no time between TERM and KILL")
				}
			default:
				t.Fatal("the rival has the lease and the program lives")
			}
			r.reads("on-lost")
			r.exits(79)
		})
	}
}

func TestRunEndsItsProgramWhenItsLeaseIsRevoked(t *testing.T) {
	t.Parallel()
	s := open(t)
	r := s.runs("", "--job", "job", "--ttl", "1s", "--on-lost", `test -n "$FENCE_LOST" && echo "lost $FENCE_JOB_ID $FENCE_GENERATION"`, "--", "sh", "-c", stubborn)
	group, _ := r.reads("group ")
	pid, err := strconv.Atoi(group)
	if err != nil {
		t.Fatal(err)
	}
	gone := dies(t, pid)
	s.wantReply(s.reply(s.control.Revoke(s.soon(), "job", 1, "test")), 200, "")
	<-gone
	if lost, _ := r.reads("lost "); lost != "job 1" {
		t.Errorf("--on-lost was told of %q", lost)
	}
	r.exits(79)
}

func TestRunPassesOnWhatThePlatformSays(t *testing.T) {
	t.Parallel()
	s := open(t)
	dir := t.TempDir()
	noProgram := filepath.Join(dir, "text")
	if err := os.WriteFile(noProgram, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(dir, "garbage")
	if err := os.WriteFile(garbage, []byte("\x00\x01"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.claim("held", "somebody", long)
	s.wantReply(s.reply(s.control.Complete(s.soon(), s.claim("completed", "somebody", long), nil)), 200, "")
	for name, tt := range map[string]struct {
		args []string
		code int
		says string // on the standard error
		left string // the state of the job
	}{
		"success":            {[]string{"--job", "success", "--", "true"}, 0, "", "completed"},
		"failure":            {[]string{"--job", "failure", "--", "sh", "-c", "exit 7"}, 7, "", "free"},
		"killed":             {[]string{"--job", "killed", "--", "sh", "-c", "kill -KILL $$"}, 137, "", "free"},
		"terminated":         {[]string{"--job", "terminated", "sh", "-c", "kill -TERM $$"}, 143, "", "free"},
		"held":               {[]string{"--job", "held", "--", "true"}, 75, `held by "somebody"`, "held"},
		"held after a wait":  {[]string{"--job", "held", "--wait", "100ms", "--", "true"}, 75, `held by "somebody"`, "held"},
		"completed":          {[]string{"--job", "completed", "--", "true"}, 75, "is completed", "completed"},
		"not found":          {[]string{"--job", "absent", "--", "no-such-program-anywhere"}, 127, "not found", ""},
		"not there":          {[]string{"--job", "absent", "--", filepath.Join(dir, "nothing")}, 127, "no such file", ""},
		"not executable":     {[]string{"--job", "absent", "--", noProgram}, 126, "permission denied", ""},
		"no program":         {[]string{"--job", "garbage", "--", garbage}, 126, "exec format error", "free"},
		"no command":         {[]string{"--job", "absent"}, 125, "no command", ""},
		"no job":             {[]string{"--", "true"}, 125, "--job is missing", ""},
		"an unknown flag":    {[]string{"--jab", "absent", "--", "true"}, 125, "unknown flag", ""},
		"a bad job":          {[]string{"--job", "a b", "--", "true"}, 125, "claim lease", ""},
		"a bad ttl":          {[]string{"--job", "absent", "--ttl", "1ms", "--", "true"}, 125, "ttl", ""},
		"a ttl refused":      {[]string{"--job", "absent", "--ttl", "48h", "--", "true"}, 125, "ttl", ""},
		"no proxy URL":       {[]string{"--job", "absent", "--proxy", "nowhere", "--", "true"}, 125, "--proxy", ""},
		"nobody at control":  {[]string{"--job", "absent", "--control", "http://127.0.0.1:1", "--", "true"}, 125, "is fenceproxy running", ""},
		"flags of a program": {[]string{"--job", "flags", "--", "sh", "-c", `exit $#`, "--", "--ttl", "-x"}, 2, "", "free"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sub := &stage{T: t, up: s.up, proxy: s.proxy, control: s.control, writer: s.writer}
			r := sub.runs("", tt.args...)
			r.exits(tt.code)
			if got := r.complaints(); !strings.Contains(got, tt.says) || tt.says == "" && got != "" {
				t.Errorf("it complained %q, want %q", got, tt.says)
			}
			if tt.left != "" {
				job := tt.args[1]
				if got := sub.reply(sub.control.Job(sub.soon(), job)); got.Text("state") != tt.left {
					t.Errorf("the job is left %s, want %s", got.Text("state"), tt.left)
				}
			}
		})
	}
}

func TestRunPassesSignalsOn(t *testing.T) {
	t.Parallel()
	// Under nohup, and behind a shell's &, a signal is ignored, and so by all that is started: taking it undoes that.
	ignored := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) {
			signal.Notify(ignored, sig)
		}
	}
	defer signal.Stop(ignored)
	s := open(t)
	const traps = `
		for s in HUP QUIT USR1 USR2 WINCH TERM; do trap "echo got $s" $s; done
		trap 'echo got INT' INT
		echo group $$
		while :; do sleep 0.02; done`
	r := s.runs("", "--job", "job", "--", "sh", "-c", traps)
	group, _ := r.reads("group ")
	for _, sig := range []struct {
		syscall.Signal
		name string
	}{
		{syscall.SIGHUP, "HUP"}, {syscall.SIGQUIT, "QUIT"}, {syscall.SIGUSR1, "USR1"}, {syscall.SIGUSR2, "USR2"},
		{syscall.SIGWINCH, "WINCH"}, {syscall.SIGTERM, "TERM"}, {syscall.SIGINT, "INT"},
	} {
		r.signal(sig.Signal)
		r.reads("got " + sig.name)
	}
	pid, err := strconv.Atoi(group)
	if err != nil {
		t.Fatal(err)
	}
	gone := dies(t, pid)
	r.signal(syscall.SIGINT) // the second
	<-gone
	r.exits(137)
	s.claim("job", "next", long)
}

func TestRunThatIsInterruptedWhileItWaitsClaimsNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	held := s.claim("job", "somebody", long)
	wire := newRelay(t, s.proxy.ControlURL())
	r := s.runs(wire.url(), "--job", "job", "--wait", "1m", "--", "true")
	s.until("it is in line", func() bool { asked, _ := wire.seen(); return asked > 0 })
	r.signal(syscall.SIGTERM)
	r.exits(143)
	s.wantReply(s.reply(s.control.Release(s.soon(), held, nil)), 200, "")
	s.takeOver("job", "next", long)
}

func TestRunEndsWhatItsProgramLeavesBeforeItGivesTheJobBack(t *testing.T) {
	t.Parallel()
	s := open(t)
	const leaves = `
		(trap "" TERM; while :; do sleep 0.02; done) &
		echo group $$`
	r := s.runs("", "--job", "job", "--grace", "200ms", "--", "sh", "-c", leaves+"; exit 3")
	group, _ := r.reads("group ")
	pid, err := strconv.Atoi(group)
	if err != nil {
		t.Fatal(err)
	}
	gone := dies(t, pid)
	got := s.reply(s.control.Claim(s.soon(), "job", "rival", long, daemon.Fields{"wait_ms": patience.Milliseconds()}))
	granted := time.Now()
	s.wantReply(got, 201, "")
	if died := <-gone; died.After(granted) {
		t.Errorf("it died %v after the rival's claim", died.Sub(granted))
	}
	r.exits(3)
}

func TestRunThatWaitsIsServedFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	s := open(t)
	held := s.claim("job", "somebody", long)
	var line []*runProcess
	for range 4 {
		wire := newRelay(t, s.proxy.ControlURL())
		line = append(line, s.runs(wire.url(), "--job", "job", "--wait", "1m", "--", "sh", "-c", `echo generation $FENCE_GENERATION; exit 5`))
		s.until("it is in line", func() bool { asked, _ := wire.seen(); return asked > 0 })
	}
	s.wantReply(s.reply(s.control.Release(s.soon(), held, nil)), 200, "")
	for i, r := range line {
		got, _ := r.reads("generation ")
		if want := fmt.Sprint(held.Generation + uint64(i) + 1); got != want {
			t.Errorf("number %d in line got generation %s, want %s", i+1, got, want)
		}
		r.exits(5)
	}
}

func TestRunFencesAProgramThatKnowsNothingOfIt(t *testing.T) {
	t.Parallel()
	s := open(t, "require_lease: true")
	program, err := workerProgram()
	if err != nil {
		t.Fatal(err)
	}
	r := s.runs("", "--job", "job", "--", program, "post", "applied")
	r.exits(0)
	seen := s.arrives("applied")
	if seen.Generation != 1 || seen.Path != "/charge?a=1;b" || seen.Method != "POST" || seen.Bytes != int64(len("amount=1")) {
		t.Errorf("the upstream saw %+v", seen)
	}
	s.executed("applied", 1)

	// The same program when its generation is dead, and nobody here knows yet: the next renewal is far.
	begin := filepath.Join(t.TempDir(), "begin")
	r = s.runs("", "--job", "late", "--ttl", "1m", "--", "sh", "-c", `echo ready; while [ ! -e "$1" ]; do sleep 0.02; done; "$0" post late`, program, begin)
	r.reads("ready")
	s.wantReply(s.reply(s.control.Revoke(s.soon(), "late", 1, "test")), 200, "")
	if err := os.WriteFile(begin, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.exits(79)
	s.unseen("late")
}

func TestRunKeepsTheLeaseIDOutOfArgumentsAndLogs(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Log("only Linux shows arguments as files")
		return
	}
	s := open(t)
	r := s.runs("", "--job", "job", "--", "sh", "-c", `echo lease $FENCE_LEASE; echo job $FENCE_JOB_ID; echo pid $$; while :; do sleep 0.02; done`)
	id, _ := r.reads("lease ")
	job, _ := r.reads("job ")
	pid, _ := r.reads("pid ")
	if id == "" || job != "job" {
		t.Fatalf("the environment has lease id %q and job %q", id, job)
	}
	for _, p := range []string{pid, strconv.Itoa(r.cmd.Process.Pid)} {
		args, err := os.ReadFile("/proc/" + p + "/cmdline")
		if err != nil || strings.Contains(string(args), id) {
			t.Errorf("arguments of process %s: %q, %v", p, args, err)
		}
	}
	r.signal(syscall.SIGTERM)
	r.exits(143)
	if strings.Contains(r.complaints()+s.proxy.Logs(), id) {
		t.Error("the lease id is in a log")
	}
}

// Its program must not go on without it: the forwarder is gone, and nobody renews.
func TestRunThatIsKilledTakesItsProgramWithIt(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Log("only Linux ties a program to its parent")
		return
	}
	s := open(t)
	r := s.runs("", "--job", "job", "--ttl", "3s", "--", "sh", "-c", `trap "" TERM; echo pid $$; exec sleep 60`)
	pid, _ := r.reads("pid ")
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	r.signal(syscall.SIGKILL)
	<-dies(t, n)
	s.takeOver("job", "next", long)
}

// The program goes on meanwhile, without a forwarder that answers. Nothing better can be had without a second watcher.
func TestRunThatWasPausedEndsItsProgramFirst(t *testing.T) {
	t.Parallel()
	s := open(t)
	r := s.runs("", "--job", "job", "--ttl", "3s", "--", "sh", "-c", stubborn)
	group, _ := r.reads("group ")
	pid, err := strconv.Atoi(group)
	if err != nil {
		t.Fatal(err)
	}
	gone := dies(t, pid)
	daemon.Freeze(t, r.cmd.Process)
	rival := s.takeOver("job", "rival", long)
	r.signal(syscall.SIGCONT)
	continued := time.Now()
	if took := (<-gone).Sub(continued); took > patience {
		t.Errorf("the program died %v after run went on", took)
	}
	r.exits(79)
	s.forwarded(s.send(write(rival, "rival", "")), 200, "applied")
}
