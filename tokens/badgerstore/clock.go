package badgerstore

import "time"

// Clock is where the store's time comes from. Wall may be stepped at any time;
// Elapsed only grows, also while the machine sleeps.
type Clock interface {
	Wall() time.Time
	Elapsed() time.Duration
}

type systemClock struct{}

func (systemClock) Wall() time.Time        { return time.Now() }
func (systemClock) Elapsed() time.Duration { return elapsed() }
