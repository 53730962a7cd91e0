package leaseclient_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/leaseclient"
	"github.com/fenceproxy/fenceproxy/tokens"
)

const many = 10_000

// yes grants and renews everything at once, so that what is measured is the client.
type yes struct{ calls, leases, most atomic.Int64 }

func (y *yes) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var out any = wire.EndResponse{}
	switch r.URL.Path {
	case wire.PathClaim:
		var q wire.ClaimRequest
		if err := json.Unmarshal(body, &q); err != nil {
			return nil, err
		}
		out = wire.ClaimResponse{JobID: q.JobID, Generation: 1, LeaseID: "store123.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", TTL: q.TTL, ExpiresIn: q.TTL}
	case wire.PathRenewLeases:
		var q wire.RenewLeasesRequest
		if err := json.Unmarshal(body, &q); err != nil {
			return nil, err
		}
		y.calls.Add(1)
		y.leases.Add(int64(len(q.Leases)))
		if n := int64(len(q.Leases)); n > y.most.Load() {
			y.most.Store(n)
		}
		answers := make([]wire.RenewAnswer, len(q.Leases))
		for i, l := range q.Leases {
			answers[i] = wire.RenewAnswer{JobID: l.JobID, Generation: l.Generation, Status: 200, RenewResponse: &wire.RenewResponse{ExpiresIn: 30_000}}
		}
		out = wire.RenewLeasesResponse{Leases: answers}
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(b))}, nil
}

func TestTenThousandLeasesAreRenewedInFewCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var y yes
		c, err := leaseclient.New(leaseclient.Config{HTTPClient: &http.Client{Transport: &y}})
		if err != nil {
			t.Fatal(err)
		}
		leases := make([]*leaseclient.Lease, many)
		for i := range leases {
			if leases[i], err = c.Claim(context.Background(), fmt.Sprint("job-", i)); err != nil {
				t.Fatal(err)
			}
			if i%1000 == 0 {
				time.Sleep(time.Second) // they do not all start at once
			}
		}
		y.calls.Store(0)
		y.leases.Store(0)
		const minutes = 2
		time.Sleep(minutes * time.Minute)
		for _, l := range leases {
			if l.State() != leaseclient.Held {
				t.Fatalf("%v: %v", l, l.Err())
			}
		}
		calls, renewals := y.calls.Load(), y.leases.Load()
		perSecond := float64(calls) / (minutes * 60)
		t.Logf("%d leases: %.2f calls a second, %.0f leases a call, each lease renewed every %.2f s",
			many, perSecond, float64(renewals)/float64(calls), minutes*60*many/float64(renewals))
		if perSecond > 5 || y.most.Load() > 500 {
			t.Errorf("%.2f calls a second, up to %d leases in one", perSecond, y.most.Load())
		}
		if every := minutes * 60 * many / float64(renewals); every < 8 || every > 10 {
			t.Errorf("each lease is renewed every %.2f s", every)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestARealServerRenewsABatchOfLongNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		owner := string(bytes.Repeat([]byte{'"'}, wire.MaxName)) // twice as long in JSON
		c := r.client(leaseclient.Config{Owner: owner})
		pad := string(bytes.Repeat([]byte{'<'}, tokens.MaxJobID-8))
		for i := range 600 {
			r.claim(c, fmt.Sprintf("%s%08d", pad, i))
		}
		time.Sleep(11 * time.Second)
		calls := r.line.seen(wire.PathRenewLeases)
		if len(calls) == 0 || len(calls) > 6 {
			t.Errorf("%d calls", len(calls))
		}
		time.Sleep(30 * time.Second)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// BenchmarkRenewal is what one renewal costs, with the encoding and decoding on the other side.
func BenchmarkRenewal(b *testing.B) {
	var y yes
	c, err := leaseclient.New(leaseclient.Config{HTTPClient: &http.Client{Transport: &y}, TTL: 300 * time.Millisecond})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for i := range 500 {
		if _, err := c.Claim(context.Background(), fmt.Sprint("job-", i), leaseclient.WithTTL(30*time.Second)); err != nil {
			b.Fatal(err)
		}
	}
	leaseclient.RenewAll(c, b.N)
}
