//go:build unix

package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"
)

func TestDescriptorsAreSharedSoThatNobodyIsLeftWithoutAny(t *testing.T) {
	for _, c := range []struct{ limit, data, control int }{
		{256, 160, 32}, {1024, 896, 64}, {20_000, 17_750, 1250}, {1 << 20, 930_612, 65_536}, {64, 24, 8},
	} {
		data, control := shareDescriptors(c.limit)
		if data != c.data || control != c.control {
			t.Errorf("of %d: %d for data and %d for control, want %d and %d", c.limit, data, control, c.data, c.control)
		}
	}
}

// A caller that nobody knows can open connections to the control listener as well. They must not take the descriptors
// of the data listener, of the store and of those who renew.
func TestAFloodOfTheControlListenerLeavesDescriptorsToOthers(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = 512
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	r := newRig(t).start()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil { // for the flood itself
		t.Fatal(err)
	}
	flood := make([]net.Conn, 200)
	for i := range flood {
		c, err := net.Dial("tcp", r.d.controlAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		flood[i] = c
	}
	res, err := http.Get("http://" + r.d.controlAddr() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	// Of those that idle the oldest is ended.
	_ = flood[0].SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.Copy(io.Discard, flood[0]); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection that was idle for longest is still open: %v", err)
	}
}
