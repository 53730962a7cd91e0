package proxy

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// kept is an exchange that only waits.
func kept(timeout, idle time.Duration) *exchange {
	ex := &exchange{
		rt:    &route{Route: Route{Timeout: timeout, IdleTimeout: idle}},
		rc:    http.NewResponseController(httptest.NewRecorder()),
		start: time.Now(),
	}
	ex.timer.since, ex.pause.since = ex.start, ex.start
	return ex
}

func TestABoundStrikesNeverEarlyAndSoonAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &register{}
		time.Sleep(7 * time.Millisecond) // out of step with the looks
		ex, calm := kept(time.Second, time.Minute), kept(time.Minute, time.Minute)
		for _, ex := range []*exchange{ex, calm} {
			g.add(ex)
			ex.SentWhole()
		}
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if err := ex.stopped(); err != nil {
			t.Errorf("stopped early: %v", err)
		}
		time.Sleep(time.Millisecond + lookEvery)
		synctest.Wait()
		if err := ex.stopped(); !errors.Is(err, errTimeout) {
			t.Errorf("got %v, want %v", err, errTimeout)
		}
		if err := calm.stopped(); err != nil {
			t.Errorf("another one was stopped: %v", err)
		}
		calm.headCame()
		g.remove(ex)
		time.Sleep(time.Minute + lookEvery)
		synctest.Wait()
		if err := calm.stopped(); !errors.Is(err, errStalled) {
			t.Errorf("a reply that does not go on: got %v, want %v", err, errStalled)
		}
		g.remove(calm)
		time.Sleep(2 * lookEvery)
		if g.looking.Load() {
			t.Error("it looks on for nobody")
		}
	})
}

func TestABoundThatIsMovedOrLiftedDoesNotStrike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &register{}
		ex, over := kept(time.Second, time.Second), kept(time.Second, time.Second)
		for _, ex := range []*exchange{ex, over} {
			g.add(ex)
			defer g.remove(ex)
			ex.SentWhole()
		}
		over.finish()
		for range 10 {
			time.Sleep(900 * time.Millisecond)
			ex.headCame()
		}
		synctest.Wait()
		if err := errors.Join(ex.stopped(), over.stopped()); err != nil {
			t.Error(err)
		}
	})
}

func TestTheEndReachesWhatIsUnderWayAndWhatComesAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &register{}
		before, gone, after := kept(time.Second, time.Second), kept(time.Second, time.Second), kept(time.Second, time.Second)
		g.add(gone)
		g.add(before)
		g.remove(gone)
		g.end()
		g.add(after)
		for _, ex := range []*exchange{before, after} {
			if err := ex.stopped(); !errors.Is(err, errShutdown) {
				t.Errorf("got %v, want %v", err, errShutdown)
			}
			g.remove(ex)
		}
		if err := gone.stopped(); err != nil {
			t.Errorf("what was over got %v", err)
		}
	})
}
