package proxy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// The names and secrets of a request that is signed as Amazon's services want it (AWS Signature Version 4).
const (
	signSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	signScope  = "20150830/eu-central-1/s3/aws4_request"
	signDate   = "20150830T123600Z"
	signBody   = "Welcome to the bucket."
	signTarget = "/bucket/a%2Fb/c%20d+e?uploads=&partNumber=2&prefix=a%2Fb"
	signHost   = "bucket.s3.example:9000"
)

// signed are the headers that the signature covers.
var signed = []string{"content-length", "content-type", "expect", "host", "x-amz-content-sha256", "x-amz-date", "x-amz-meta-note"}

// signature computes the signature of a request from what is received. get returns a header's value.
func signature(method, target string, get func(name string) string, body string) string {
	path, query, _ := strings.Cut(target, "?")
	params := strings.Split(query, "&")
	slices.Sort(params)
	var head strings.Builder
	for _, name := range signed {
		fmt.Fprintf(&head, "%s:%s\n", name, strings.Join(strings.Fields(get(name)), " "))
	}
	canonicalRequest := strings.Join([]string{method, path, strings.Join(params, "&"), head.String(), strings.Join(signed, ";"), hexSum(body)}, "\n")
	key := []byte("AWS4" + signSecret)
	for part := range strings.SplitSeq(signScope, "/") {
		key = mac(key, part)
	}
	return hex.EncodeToString(mac(key, strings.Join([]string{"AWS4-HMAC-SHA256", signDate, signScope, hexSum(canonicalRequest)}, "\n")))
}

func hexSum(s string) string { sum := sha256.Sum256([]byte(s)); return hex.EncodeToString(sum[:]) }

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// signedRequest is an upload that the caller has signed.
func signedRequest() string {
	lines := []string{"Host: " + signHost, "Content-Type: text/plain", fmt.Sprintf("Content-Length: %d", len(signBody)), "X-Amz-Date: " + signDate,
		"X-Amz-Content-Sha256: " + hexSum(signBody), "X-Amz-Meta-Note: a   b"}
	get := func(name string) string {
		for _, l := range lines {
			if n, v, _ := strings.Cut(l, ": "); strings.EqualFold(n, name) {
				return v
			}
		}
		return ""
	}
	lines = append(lines, fmt.Sprintf("Authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/%s, SignedHeaders=%s, Signature=%s",
		signScope, strings.Join(signed, ";"), signature("PUT", signTarget, get, signBody)))
	return request("PUT "+signTarget+" HTTP/1.1", lines...) + signBody
}

// verifySignature answers 403 if what has arrived is not what was signed.
func verifySignature(u *served) {
	u.read()
	line := strings.Split(u.first, " ")
	if got := signature(line[0], line[1], u.get, string(u.body)); !strings.HasSuffix(u.get("Authorization"), "Signature="+got) {
		u.write(response("403 Forbidden", "Content-Length: 0"))
		return
	}
	u.write(reply200("Etag: \"e\"", "Content-Length: 0"))
}
