package listen

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// setting counts what is set on the connection below.
type setting struct {
	net.Conn
	reads, writes int
}

func (s *setting) SetReadDeadline(t time.Time) error  { s.reads++; return s.Conn.SetReadDeadline(t) }
func (s *setting) SetWriteDeadline(t time.Time) error { s.writes++; return s.Conn.SetWriteDeadline(t) }

// piped is a connection of a register whose other end is a pipe.
func piped(t *testing.T) (c *conn, below *setting, other net.Conn) {
	a, b := net.Pipe()
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	below = &setting{Conn: a}
	return new(register).add(below), below, b
}

func TestADeadlineStrikesWhenItWasAskedForWhateverWasSetBefore(t *testing.T) {
	for _, c := range []struct {
		name string
		ask  []time.Duration // from the beginning on; negative for none
		want time.Duration   // negative for never
	}{
		{"One", []time.Duration{10 * time.Second}, 10 * time.Second},
		{"Later", []time.Duration{10 * time.Second, 120 * time.Second}, 120 * time.Second},
		{"Sooner", []time.Duration{120 * time.Second, 10 * time.Second}, 10 * time.Second},
		{"LaterAndSooner", []time.Duration{10 * time.Second, 120 * time.Second, 30 * time.Second}, 30 * time.Second},
		{"LiftedAndSetLater", []time.Duration{10 * time.Second, -1, 120 * time.Second}, 120 * time.Second},
		{"LiftedAndSetSooner", []time.Duration{10 * time.Second, -1, 5 * time.Second}, 5 * time.Second},
		{"Lifted", []time.Duration{10 * time.Second, -1}, -1},
		{"Past", []time.Duration{10 * time.Second, 0}, 0},
		{"PastAndLater", []time.Duration{0, 10 * time.Second}, 10 * time.Second},
		{"PastAndLifted", []time.Duration{0, -1}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, _, other := piped(t)
				began := time.Now()
				for _, d := range c.ask {
					at := time.Time{}
					if d >= 0 {
						at = began.Add(d)
					}
					if err := conn.SetDeadline(at); err != nil {
						t.Fatal(err)
					}
				}
				calls := []struct {
					name string
					call func([]byte) (int, error)
				}{{"read", conn.Read}, {"write", conn.Write}}
				type ended struct {
					name string
					err  error
					at   time.Duration
				}
				done := make(chan ended, len(calls))
				for _, k := range calls {
					go func() {
						_, err := k.call(make([]byte, 1))
						done <- ended{k.name, err, time.Since(began)}
					}()
				}
				if c.want < 0 {
					time.Sleep(time.Hour) // of the bubble's clock: whatever was set has struck
					synctest.Wait()
					_ = other.Close()
					for range calls {
						if e := <-done; e.at != time.Hour || errors.Is(e.err, os.ErrDeadlineExceeded) {
							t.Errorf("the %s ended after %s: %v", e.name, e.at, e.err)
						}
					}
					return
				}
				for range calls {
					if e := <-done; !errors.Is(e.err, os.ErrDeadlineExceeded) || e.at != c.want {
						t.Errorf("the %s ended after %s, want %s: %v", e.name, e.at, c.want, e.err)
					}
				}
			})
		})
	}
}

func TestADeadlineEndsWhatIsUnderWayAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _, _ := piped(t)
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		done := make(chan error, 1)
		go func() {
			_, err := conn.Read(make([]byte, 1))
			done <- err
		}()
		synctest.Wait()
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		synctest.Wait()
		select {
		case err := <-done:
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
		default:
			t.Error("the read goes on")
		}
	})
}

func TestAWriteThatGoesOnBehindADeadlineSendsNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _, other := piped(t)
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_ = conn.SetWriteDeadline(time.Now().Add(time.Minute))
		done := make(chan error, 1)
		go func() {
			n, err := conn.Write([]byte("abcdef"))
			if n != 6 {
				t.Errorf("wrote %d bytes", n)
			}
			done <- err
		}()
		first := make([]byte, 2)
		if _, err := io.ReadFull(other, first); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // of the bubble's clock: the first deadline strikes in the middle
		rest := make([]byte, 4)
		if _, err := io.ReadFull(other, rest); err != nil {
			t.Fatal(err)
		}
		if got := string(first) + string(rest); got != "abcdef" {
			t.Errorf("got %q", got)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestWhatAServerAsksForWithEachRequestIsSetOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, below, _ := piped(t)
		for range 100 {
			now := time.Now()
			_ = conn.SetReadDeadline(now.Add(headTimeout))
			_ = conn.SetReadDeadline(time.Time{})
			_ = conn.SetWriteDeadline(now.Add(time.Minute))
			_ = conn.SetWriteDeadline(time.Time{})
			_ = conn.SetReadDeadline(now.Add(keepTimeout))
			time.Sleep(time.Millisecond) // of the bubble's clock
		}
		if below.reads != 1 || below.writes != 1 {
			t.Errorf("%d deadlines were set for reads and %d for writes", below.reads, below.writes)
		}
	})
}
