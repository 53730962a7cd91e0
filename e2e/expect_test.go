package e2e_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
)

// heads reads answers from a raw connection up to the first final one, and returns their statuses.
func (s *stage) heads(c net.Conn) []int {
	s.Helper()
	deadline, _ := s.soon().Deadline()
	if err := c.SetReadDeadline(deadline); err != nil {
		s.Fatal(err)
	}
	var seen []int
	for br := bufio.NewReader(c); ; {
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			s.Fatalf("after %v: %v", seen, err)
		}
		seen = append(seen, res.StatusCode)
		if res.StatusCode >= 200 {
			return seen
		}
	}
}

func TestOnlyAWriteThatMayGoOnIsToldToContinue(t *testing.T) {
	t.Parallel()
	for _, length := range []int{1000, 5 << 20} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			t.Parallel()
			s := open(t)
			old := s.claim("job", "A", brief)
			l := s.takeOver("job", "B", long)
			framing := fmt.Sprintf("Expect: 100-continue\r\nContent-Length: %d", length)
			if got := s.heads(s.raw(old, "stale", framing)); len(got) != 1 || got[0] != 412 {
				t.Errorf("the stale write was answered %v, want 412 alone", got)
			}
			s.unseen("stale")
			c := s.raw(l, "good", framing)
			br := bufio.NewReader(c)
			if res, err := http.ReadResponse(br, nil); err != nil || res.StatusCode != http.StatusContinue {
				t.Fatalf("got %v, %v, want 100", res, err)
			}
			s.say(c, string(pattern(length)))
			if res, err := http.ReadResponse(br, nil); err != nil || res.StatusCode != 200 {
				t.Fatalf("got %v, %v, want 200", res, err)
			}
			if seen := s.ends("good"); !seen.Complete || seen.Bytes != int64(length) {
				t.Errorf("the upstream got %d bytes, complete %v", seen.Bytes, seen.Complete)
			}
		})
	}
}
