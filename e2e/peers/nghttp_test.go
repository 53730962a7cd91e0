//go:build linux

package peers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// nghttp sends a body of a file on so many streams of one connection at once, and prints every frame.
func (s *davStage) nghttp(l daemon.Lease, times int, body, target string, more ...string) *process {
	s.Helper()
	args := []string{"-nv", "--no-dep", "--timeout", "60", "-m", fmt.Sprint(times), "-d", body, "-H", ":method: PUT", "-H", "fence-job-id: " + l.Job,
		"-H", fmt.Sprintf("fence-generation: %d", l.Generation)}
	return s.start(nil, "nghttp", append(append(args, more...), target)...)
}

// answered counts the replies with a status.
func (p *process) answered(status string) int { return strings.Count(p.said(), ":status: "+status) }

func TestNghttpIsFencedOnEachStreamOfItsConnection(t *testing.T) {
	for _, p := range protocols()[1:] {
		t.Run(p.name, func(t *testing.T) {
			s := openDAV(t, p)
			body := file(t, "body", 300<<10, 1)
			older := s.claim("reports", "a")
			put := s.nghttp(older, 8, body, s.url+"/report", "--trailer", "x-sum: 1")
			put.exit()
			if first, rest := put.answered("201"), put.answered("204"); first < 1 || first+rest != 8 {
				t.Errorf("%d and %d of 8 writes were answered 201 and 204: %s", first, rest, put.said())
			}
			wantFile(t, s.nginx.dav+"/report", body)

			newer, other := s.takeOver("reports", "b"), file(t, "other", 1<<20, 2)
			before := s.valve.lines()
			put = s.nghttp(older, 8, body, s.url+"/report")
			put.exit()
			if n := put.answered("412"); n != 8 || s.valve.lines() != before {
				t.Errorf("%d of 8 older writes were refused: %s", n, put.said())
			}
			put = s.nghttp(newer, 1, other, s.url+"/report")
			put.exit()
			if put.answered("204") != 1 {
				t.Errorf("the newer write was not answered 204: %s", put.said())
			}
			wantFile(t, s.nginx.dav+"/report", other)
		})
	}
}

func TestATakeoverCutsEachStreamOfNghttp(t *testing.T) {
	for _, p := range protocols()[1:] {
		t.Run(p.name, func(t *testing.T) {
			s := openDAV(t, p)
			first, second := file(t, "first", 12<<20, 1), file(t, "second", 1<<20, 2)
			older := s.claim("reports", "a")
			var holds []*hold
			for range 3 {
				holds = append(holds, s.valve.holdRequest("PUT /dav/report", 64<<10))
			}
			put := s.nghttp(older, 3, first, s.url+"/report")
			for _, h := range holds {
				h.wait(t)
			}
			newer := s.takeOver("reports", "b")
			put.exit()
			if put.answered("412") != 3 {
				t.Errorf("the three writes were not refused: %s", put.said())
			}
			s.says(s.curl(newer, "-T", second, s.url+"/report"), "201 forwarded applied")
			for _, h := range holds {
				h.open()
			}
			s.until("nginx has given the cut uploads up", func() bool { return strings.Count(read(t, s.nginx.log), "PUT /dav/report 4") == 3 })
			wantFile(t, s.nginx.dav+"/report", second)
		})
	}
}

// A connection that was upgraded from HTTP/1 would be judged by nobody.
func TestNghttpGetsNoUpgrade(t *testing.T) {
	s := openDAV(t, protocols()[1])
	body := file(t, "body", 3000, 1)
	if put := s.nghttp(s.claim("reports", "a"), 1, body, s.url+"/report", "--upgrade"); put.exit() == 0 && !strings.Contains(put.said(), "400") {
		t.Errorf("nghttp upgraded: %s", put.said())
	}
	wantAbsent(t, s.nginx.dav+"/report")
	if n := s.valve.count(""); n != 0 {
		t.Errorf("nginx got\n%s", s.valve.lines())
	}
}
