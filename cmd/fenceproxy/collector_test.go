package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// gogc reads the present setting.
func gogc() int {
	p := debug.SetGCPercent(100)
	debug.SetGCPercent(p)
	return p
}

func TestASmallHeapGetsHeadroomAndALargeOneGoesOwnPace(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 400}, {4 << 20, 400}, {16 << 20, 400}, {32 << 20, 200}, {64 << 20, 100}, {1 << 40, 100}} {
		if got := percentFor(c.live); got != c.want {
			t.Errorf("%d live bytes get GOGC=%d, want %d", c.live, got, c.want)
		}
	}
}

func TestThePaceFollowsTheHeapAfterEachCollection(t *testing.T) {
	defer debug.SetGCPercent(gogc())
	stop := paceCollector(func(string) string { return "" })
	defer stop()
	follow := func(what string, ok func(percent int) bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); !ok(gogc()); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("GOGC is %d, never one for %s", gogc(), what)
			}
			runtime.GC()
		}
	}
	follow("a small heap", func(p int) bool { return p > 200 })
	kept := make([]*[1 << 10]byte, 100<<10)
	for i := range kept {
		kept[i] = new([1 << 10]byte)
	}
	// A collection while it was still growing may have come to a little more than 100, and then that stays.
	follow("a large heap", func(p int) bool { return p-p/8 <= 100 })
	runtime.KeepAlive(kept)
	kept = nil
	follow("a heap that became small again", func(p int) bool { return p > 200 })
	stop()
	if p := gogc(); p != 100 {
		t.Errorf("after the stop GOGC is %d", p)
	}
}

func TestAChosenPaceIsLeftAlone(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(77))
	paceCollector(func(name string) string { return map[string]string{"GOGC": "77"}[name] })()
	runtime.GC()
	if p := gogc(); p != 77 {
		t.Errorf("GOGC is %d, want 77", p)
	}
}
