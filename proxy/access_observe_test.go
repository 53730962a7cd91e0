package proxy

import "testing"

func TestARouteThatObservesLetsNoStrangerIn(t *testing.T) {
	u := newUpstream(t, nil)
	f := newDoorFixture(t, u.URL, true, func(r *Route) { r.Observe = true })
	want(t, f.do(f.as("stranger"), "POST", "job", "1", ""), 403, "refused", "forbidden", "")
	want(t, f.do(f.as("c"), "POST", "other", "1", ""), 403, "refused", "forbidden", "")
	if u.conns.Load() != 0 {
		t.Error("the upstream was spoken to")
	}
	want(t, f.do(f.as("c"), "POST", "mine/1", "1", ""), 200, "forwarded", "", "applied")
}
