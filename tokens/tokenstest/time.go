package tokenstest

import (
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func timeCases() []conformance {
	return []conformance{
		{"TimeNeverRunsBack", timeForward},
		{"TimeNeverRunsBackAcrossReopening", timeReopen},
		{"TimeDoesNotFollowAStepBackOfTheWallClock", timeStepBack},
	}
}

// watch fails when a time is before the latest one it was shown.
type watch struct {
	t      *testing.T
	latest time.Time
}

func (w *watch) see(now time.Time, where string) {
	w.t.Helper()
	if now.Before(w.latest) {
		w.t.Errorf("%s: the store's time went back by %v", where, w.latest.Sub(now))
	}
	w.latest = now
}

func timeForward(t *testing.T, o Opener) {
	s := open(t, o)
	w := &watch{t: t}
	var v tokens.Version
	for i := range 50 {
		w.see(s.load(job("absent")).Now, "load of an absent job")
		v = s.commit(job("j"), v, sample(tokens.Generation(i+1)))
		w.see(s.load(job("j")).Now, "load")
		for _, l := range s.list(tokens.ListQuery{Limit: 1}) {
			w.see(l.Now, "list")
		}
	}
}

func timeReopen(t *testing.T, o Opener) {
	w := &watch{t: t}
	for i := range 3 {
		s := open(t, o)
		w.see(s.load(job("j")).Now, "first load after opening")
		s.commit(job("j"), s.load(job("j")).Version, sample(tokens.Generation(i+1)))
		w.see(s.load(job("j")).Now, "load before closing")
		s.close()
	}
}

func timeStepBack(t *testing.T, o Opener) {
	wall, ok := o.(WallStepper)
	if !ok {
		return // this opener's wall clock is the machine's
	}
	w := &watch{t: t}
	s := open(t, o)
	s.commit(job("j"), 0, sample(1))
	for range 2 {
		w.see(s.load(job("j")).Now, "load")
		wall.StepWall(-time.Hour)
		w.see(s.load(job("j")).Now, "load after the wall clock was stepped back")
		s.close()
		wall.StepWall(-time.Hour)
		s = open(t, o)
		w.see(s.load(job("j")).Now, "load after the wall clock was stepped back and the store reopened")
	}
}
