package socket

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// pair returns both ends of a connection, the first one ours.
func pair(t *testing.T) (ours net.Conn, under, theirs *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	a, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	under, theirs = a.(*net.TCPConn), b.(*net.TCPConn)
	t.Cleanup(func() { _, _ = under.Close(), theirs.Close() })
	for _, c := range []net.Conn{under, theirs} {
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	return New(under), under, theirs
}

func TestWhatIsWrittenArrivesWholeAndInOrder(t *testing.T) {
	ours, _, theirs := pair(t)
	sent := make([]byte, 8<<20) // more than the buffers of both sockets
	for i := range sent {
		sent[i] = byte(i * i >> 8)
	}
	got := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(theirs) // what is missing shows
		_, _ = theirs.Write(b)
		_ = theirs.CloseWrite()
		got <- b
	}()
	if n, err := ours.Write(sent); n != len(sent) || err != nil {
		t.Fatalf("wrote %d bytes and got %v", n, err)
	}
	if err := ours.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	back, err := io.ReadAll(ours)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(<-got, sent) || !bytes.Equal(back, sent) {
		t.Error("what arrived is not what was sent")
	}
}

func TestConcurrentReadsTakeTurns(t *testing.T) {
	ours, _, theirs := pair(t)
	const readers, each = 8, 1 << 10
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[byte]int{}
	for range readers {
		wg.Go(func() {
			b := make([]byte, 64)
			for {
				n, err := ours.Read(b)
				if err != nil {
					return
				}
				mu.Lock()
				for _, c := range b[:n] {
					seen[c]++
				}
				mu.Unlock()
			}
		})
	}
	for i := range each {
		if _, err := theirs.Write([]byte{byte(i), byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	_ = theirs.Close()
	wg.Wait()
	for i := range 256 {
		if seen[byte(i)] != 2*each/256 {
			t.Fatalf("byte %d was read %d times, want %d", i, seen[byte(i)], 2*each/256)
		}
	}
}

func TestADeadlineEndsAReadAndTheNextOneGoesOn(t *testing.T) {
	ours, _, theirs := pair(t)
	if err := ours.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, err := ours.Read(make([]byte, 1))
	var ne net.Error
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &ne) || !ne.Timeout() {
		t.Fatalf("got %v", err)
	}
	if err := ours.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	_, _ = theirs.Write([]byte("x"))
	if n, err := ours.Read(make([]byte, 9)); n != 1 || err != nil {
		t.Errorf("then got %d bytes and %v", n, err)
	}
}

func TestADeadlineEndsAWriteWhichSaysHowMuchTheKernelTook(t *testing.T) {
	ours, _, theirs := pair(t)
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	go func() {
		n, err := ours.Write(make([]byte, 64<<20)) // nobody reads but one byte
		done <- result{n, err}
	}()
	if _, err := io.ReadFull(theirs, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := ours.SetWriteDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	r := <-done
	if !errors.Is(r.err, os.ErrDeadlineExceeded) || r.n == 0 || r.n == 64<<20 {
		t.Fatalf("wrote %d bytes and got %v", r.n, r.err)
	}
	_ = ours.Close()
	if got, _ := io.Copy(io.Discard, theirs); got+1 != int64(r.n) {
		t.Errorf("%d bytes arrived of %d", got+1, r.n)
	}
}

func TestAReadEndsAsThoseOfPackageNetDo(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(ours net.Conn, under, theirs *net.TCPConn)
		want error
	}{
		{"Close", func(ours net.Conn, _, _ *net.TCPConn) { _ = ours.Close() }, net.ErrClosed},
		{"CloseBelow", func(_ net.Conn, under, _ *net.TCPConn) { _ = under.Close() }, net.ErrClosed},
		{"TheirEnd", func(_ net.Conn, _, theirs *net.TCPConn) { _ = theirs.Close() }, io.EOF},
		{"Reset", func(_ net.Conn, _, theirs *net.TCPConn) { _, _ = theirs.SetLinger(0), theirs.Close() }, syscall.ECONNRESET},
	} {
		t.Run(c.name, func(t *testing.T) {
			ours, under, theirs := pair(t)
			done := make(chan error, 1)
			go func() {
				_, err := ours.Read(make([]byte, 1))
				done <- err
			}()
			c.end(ours, under, theirs)
			err := <-done
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			// net/http tells by the name of the operation that the connection failed.
			if op, ok := err.(*net.OpError); c.want != io.EOF && (!ok || op.Op != "read") { //nolint:errorlint // as net/http does
				t.Errorf("%#v is no failed read", err)
			}
			if c.want == io.EOF && err != io.EOF {
				t.Errorf("%#v is not io.EOF itself", err)
			}
		})
	}
}

func TestAWriteToAConnectionThatWasResetFails(t *testing.T) {
	ours, _, theirs := pair(t)
	_, _ = theirs.SetLinger(0), theirs.Close()
	_, _ = ours.Read(make([]byte, 1)) // until the reset is here
	_, err := ours.Write([]byte("x"))
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "write" || !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v", err)
	}
}

func TestQuietSeesWhatCameAndThatTheOtherEndIsGone(t *testing.T) {
	for _, c := range []struct {
		name string
		say  func(theirs *net.TCPConn)
	}{
		{"Bytes", func(theirs *net.TCPConn) { _, _ = theirs.Write([]byte("x")) }},
		{"End", func(theirs *net.TCPConn) { _ = theirs.Close() }},
		{"Reset", func(theirs *net.TCPConn) { _, _ = theirs.SetLinger(0), theirs.Close() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			ours, under, theirs := pair(t)
			if !Quiet(under) {
				t.Error("a connection that nobody has used is not quiet")
			}
			c.say(theirs)
			// Loopback delivers before the call returns; elsewhere it takes a moment.
			for end := time.Now().Add(10 * time.Second); Quiet(under); {
				if time.Now().After(end) {
					t.Fatal("it is quiet still")
				}
			}
			_ = ours.Close()
			if Quiet(under) {
				t.Error("a closed connection is quiet")
			}
		})
	}
}
