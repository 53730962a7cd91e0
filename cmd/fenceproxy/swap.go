package main

import (
	"net/http"
	"sync/atomic"
)

// swap serves by a handler that can be replaced. A request stays with the one that it
// came in by.
type swap struct{ now atomic.Pointer[http.Handler] }

func (s *swap) use(h http.Handler) { s.now.Store(&h) }

// ServeHTTP implements http.Handler.
func (s *swap) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*s.now.Load()).ServeHTTP(w, r) }
