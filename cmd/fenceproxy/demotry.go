package main

import "strings"

// try is a request to make by hand: curl's arguments as a shell takes them, with a line
// break where it helps.
type try struct{ why, curl string }

// tries leads through a takeover of one's own: claim, write, lose the job, write again.
func tries(proxyURL, controlURL string) []try {
	const claim = ` -H 'Content-Type: application/json' \
       -d '{"job_id":"mine","owner":"me","ttl_ms":600000}'`
	const write = ` -d '' \
       -H 'Fence-Job-Id: mine' -H 'Fence-Generation: 1'`
	const revoke = ` -H 'Content-Type: application/json' \
       -d '{"job_id":"mine","reason":"looks stuck"}'`
	return []try{
		{"claim a job", "curl -s " + controlURL + "/v1/lease/claim" + claim},
		{"write with its generation: 200", "curl -i " + proxyURL + "/orders/mine/instalment/1" + write},
		{"take it away, as an operator does", "curl -s " + controlURL + "/v1/job/revoke" + revoke},
		{"the same write is stale: 412", "curl -i " + proxyURL + "/orders/mine/instalment/1" + write},
	}
}

func printTry(s *stage, all []try, proxyURL, controlURL, bareURL string) {
	s.text("", plain)
	s.text("Try it yourself. Ctrl-C ends the demo.", loud)
	for _, a := range []struct{ name, url string }{{"proxy", proxyURL}, {"control", controlURL}, {"the API without a fence", bareURL}} {
		s.text("  "+a.name+strings.Repeat(" ", 25-len(a.name))+a.url, plain)
	}
	for _, t := range all {
		s.text("", plain)
		s.text("  # "+t.why, faint)
		s.text("  "+t.curl, plain)
	}
	s.text("", plain)
}
