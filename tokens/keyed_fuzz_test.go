package tokens_test

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func FuzzDecodeWrite(f *testing.F) {
	for _, w := range []tokens.WriteRecord{{State: tokens.WriteInFlight}, {State: tokens.WriteApplied, Attempt: "a-1", Generation: 7, Status: 201, HasReply: true, Expires: 1}} {
		b, err := tokens.EncodeWrite(w)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"state":"free"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := tokens.DecodeWrite(b)
		if err != nil {
			return
		}
		if w.State == "" || w.Reply != nil {
			t.Fatalf("%q decodes to %+v", b, w)
		}
		again, err := tokens.EncodeWrite(w)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := tokens.DecodeWrite(again); err != nil || back != w {
			t.Fatalf("%+v came back as %+v (%v)", w, back, err)
		}
	})
}

func FuzzDecodeReply(f *testing.F) {
	b, err := tokens.EncodeReply(&tokens.Reply{Header: http.Header{"A": {"1", "2"}}, Body: []byte("body")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0, 0, 0, 4, 'n', 'u', 'l', 'l'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, '{', '}'})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := tokens.DecodeReply(b)
		if err != nil {
			return
		}
		again, err := tokens.EncodeReply(r)
		if err != nil {
			t.Fatal(err)
		}
		back, err := tokens.DecodeReply(again)
		if err != nil || !bytes.Equal(back.Body, r.Body) || len(back.Header) != len(r.Header) {
			t.Fatalf("%+v came back as %+v (%v)", r, back, err)
		}
	})
}
