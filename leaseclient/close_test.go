package leaseclient_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/leaseclient"
)

func TestCloseWithTenLeasesLeavesNothingHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, u := newRig(t), newUpstream()
		c := r.client(leaseclient.Config{})
		var held []*leaseclient.Lease
		for i := range 10 {
			held = append(held, r.claim(c, fmt.Sprint("j", i)))
		}
		quick, stuck := u.write(t, held[3]), u.write(t, held[7])
		waiting := make(chan error, 1)
		r.free("taken")
		go func() {
			_, err := c.Claim(context.Background(), "taken", leaseclient.WithWait(time.Hour))
			waiting <- err
		}()
		time.Sleep(time.Second)
		u.send <- ok() // to the first that takes it
		start := time.Now()
		err := c.Close()
		if err == nil || !strings.Contains(err.Error(), "1 of 10") || time.Since(start) != 10*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		errs := []error{<-quick, <-stuck}
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("the writes: %v", errs)
		}
		if err := <-waiting; !errors.Is(err, leaseclient.ErrClosed) {
			t.Errorf("the claim that waited: %v", err)
		}
		for _, l := range held {
			r.free(l.JobID())
			if l.State() != leaseclient.Lost {
				t.Errorf("%v", l)
			}
		}
		if _, err := c.Claim(context.Background(), "more"); !errors.Is(err, leaseclient.ErrClosed) {
			t.Errorf("%v", err)
		}
		r.still()
	})
}

func TestCloseWhileTheLineHangsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.client(leaseclient.Config{})
		l := r.claim(c, "j")
		r.line.set(func(call, int) fault { return hang })
		start := time.Now()
		if err := c.Close(); err == nil || time.Since(start) > 20*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if l.Err() == nil {
			t.Error("the lease is not over")
		}
	})
}
