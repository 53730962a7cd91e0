package proxy

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestASendsContextEndsForWhoeverWaitsWheneverItIsAsked(t *testing.T) {
	var w sendContext
	child, cancel := context.WithTimeout(&w, time.Hour)
	defer cancel()
	if err := errors.Join(w.Err(), child.Err()); err != nil {
		t.Errorf("it has ended before it was cancelled: %v", err)
	}
	before := w.Done()
	w.cancel(errTimeout)
	w.cancel(errStalled)
	<-before
	<-child.Done()
	if !errors.Is(w.Err(), context.Canceled) || !errors.Is(child.Err(), context.Canceled) {
		t.Errorf("got %v and %v", w.Err(), child.Err())
	}
	if err := causeOf(&w); !errors.Is(err, errTimeout) {
		t.Errorf("the cause is %v, want %v", err, errTimeout)
	}
	var late sendContext
	late.cancel(nil)
	<-late.Done()
	if err := causeOf(&late); !errors.Is(err, context.Canceled) {
		t.Errorf("without a cause it is %v", err)
	}
}
