package badgerstore

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func raiseInBackground(s *Store) error { return raise(context.Background(), s, job("held"), 7) }

func TestASecondProcessIsToldWhoHoldsTheDirectory(t *testing.T) {
	dir := t.TempDir()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), holdVariable+"="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	kill := func() {
		if !killed {
			killed = true
			_ = child.Process.Kill()
			_ = child.Wait()
		}
	}
	defer kill()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "holding\n" {
		t.Fatalf("the holder said %q (%v)", line, err)
	}
	_, err = Open(Options{Dir: dir})
	wantError(t, err, ErrLocked)
	for _, want := range []string{"process " + strconv.Itoa(child.Process.Pid), "on host ", "started 20", "stop it"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error %q does not say %q", err, want)
		}
	}
	_, err = Salvage(Options{Dir: dir})
	wantError(t, err, ErrLocked)

	kill()
	s := mustOpen(t, Options{Dir: dir})
	if got := floorOf(t, s, job("held")); got != 7 {
		t.Errorf("after kill -9 the floor is %d, want 7", got)
	}
}

func TestADirectoryThatBadgerItselfHasOpenIsLocked(t *testing.T) {
	dir := t.TempDir()
	closeStore(t, mustOpen(t, Options{Dir: dir}))
	db, err := openBadger(storeDir(dir), Options{}.withDefaults().Logger)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	_, err = Open(Options{Dir: dir})
	wantError(t, err, ErrLocked)
}

func TestWhatIsInTheDirectoryIsForItsOwnerOnly(t *testing.T) {
	dir := t.TempDir() + "/made"
	closeStore(t, mustOpen(t, Options{Dir: dir}))
	for _, path := range []string{dir, storeDir(dir)} {
		fi, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v, want 0700", path, fi.Mode().Perm())
		}
	}
}
