package proxy

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// An upstream that answers before it has the whole request may be at work on what it has got. tokens/model found that
// such a write was settled as soon as it was cut.
func TestLingerHoldsBackTheSuccessorOfACutWriteThatWasAnsweredEarly(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		atWork := make(chan struct{})
		defer close(atWork)
		u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Slow") == "" {
				return
			}
			rc := http.NewResponseController(w)
			_ = rc.EnableFullDuplex() // HTTP/2 is so anyway
			_, _ = r.Body.Read(make([]byte, 1))
			_ = rc.Flush()
			<-atWork
		})
		f := newFixture(t, u.URL, sender, func(r *Route) {
			r.BodyBuffer, r.Linger, r.TakeoverWait = 1000, time.Hour, 20*time.Millisecond
		})
		f.claim("j")
		pr, pw := io.Pipe()
		defer func() { _ = pw.Close() }()
		go func() { _, _ = pw.Write(make([]byte, 5000)) }()
		r := f.request("j", "1", pr)
		r.Header.Set("X-Slow", "1")
		res, err := f.server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		f.takeOver("j")
		if _, err := io.Copy(io.Discard, res.Body); err == nil {
			t.Error("the reply to a write that was cut looks whole")
		}
		_ = res.Body.Close()
		eventually(t, "the exchange ends", func() bool {
			return strings.Contains(f.scrape(), `fenceproxy_in_flight{route="default"} 0`)
		})
		job, err := f.authority.Job(context.Background(), tokens.Job{ID: "j"})
		if err != nil {
			t.Fatal(err)
		}
		if job.InFlight != 1 {
			t.Errorf("%d attempts are under way, want the one that lingers", job.InFlight)
		}
		want(t, f.post("j", "2"), 503, "refused", "takeover-pending", "")
	})
}
