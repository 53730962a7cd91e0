package control

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/fenceproxy/fenceproxy/internal/auth"
	"github.com/fenceproxy/fenceproxy/internal/wire"
)

// batchWidth is how many renewals of one call are under way at once. The store merges
// what waits for it, so one after another would cost an fsync each.
const batchWidth = 64

// renewLeases renews many leases, each with its own answer and its own count. Only a
// body that can not be read is refused as a whole.
func (s *server) renewLeases(w http.ResponseWriter, r *http.Request) {
	var q wire.RenewLeasesRequest
	if p := s.allowed(r, auth.Worker); p != nil {
		s.count("renew", reply{}, p)
		p.Write(w)
		return
	}
	if p := read(r, wire.MaxBatchBody, &q); p != nil {
		s.count("renew", reply{}, p)
		p.Write(w)
		return
	}
	answers := make([]wire.RenewAnswer, len(q.Leases))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(batchWidth, len(q.Leases)) {
		workers.Go(func() {
			for i := range next {
				answers[i] = s.renewEntry(r, q.Leases[i], i)
			}
		})
	}
	for i := range q.Leases {
		next <- i
	}
	close(next)
	workers.Wait()
	wire.WriteJSON(w, http.StatusOK, wire.TypeJSON, wire.RenewLeasesResponse{Leases: answers})
}

func (s *server) renewEntry(r *http.Request, q wire.RenewRequest, i int) (answer wire.RenewAnswer) {
	answer = wire.RenewAnswer{JobID: q.JobID, Generation: q.Generation, Status: http.StatusOK}
	defer func() {
		// This is not the handler's goroutine: a panic here would end the process.
		if v := recover(); v != nil {
			s.logPanic(r, v)
			answer.Problem = internal()
			answer.Status = answer.Problem.Status
		}
	}()
	rep, p := s.renewOne(r, q)
	s.count("renew", rep, p)
	if p != nil {
		if p.Field != "" {
			at := fmt.Sprintf("leases[%d].", i)
			p.Field, p.Detail = at+p.Field, at+p.Detail
		}
		answer.Status, answer.Problem = p.Status, p
		return answer
	}
	answer.RenewResponse, _ = rep.body.(*wire.RenewResponse)
	return answer
}
