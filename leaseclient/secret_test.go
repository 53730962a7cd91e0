package leaseclient_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/leaseclient"
)

func TestNoWayOfPrintingShowsTheLeaseIDOrTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		cfg := leaseclient.Config{Token: "t0ken", HTTPClient: &http.Client{Transport: r.line}}
		c := r.client(cfg)
		l := r.claim(c, "j")
		h := http.Header{}
		l.Header(h)
		id := h.Get(wire.HeaderLease)
		if id == "" {
			t.Fatal("no lease id")
		}
		encoded, _ := json.Marshal(struct {
			L *leaseclient.Lease
			C *leaseclient.Client
		}{l, c})
		var line strings.Builder
		slog.New(slog.NewJSONHandler(&line, nil)).Info("x", "lease", l, "client", c, "config", cfg)
		var log strings.Builder
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "lease", l, "client", c, "config", cfg)
		shown := log.String() + line.String() + string(encoded)
		for _, v := range []any{l, c, cfg, struct{ L *leaseclient.Lease }{l}, []any{l, c}, map[string]any{"l": l}} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d"} {
				shown += fmt.Sprintf(verb, v)
			}
		}
		if strings.Contains(shown, id) || strings.Contains(shown, "t0ken") {
			t.Error("a secret was shown")
		}
		if got := l.String(); got != `lease of job "j", generation 1, held` {
			t.Error(got)
		}
	})
}

func TestSpansTellTheJobAndLinkTheServerAndHoldNoSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		spans := tracetest.NewInMemoryExporter()
		tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
		parents := map[string]string{}
		api := r.line.handler
		r.line.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			parents[req.URL.Path] = req.Header.Get("Traceparent")
			api.ServeHTTP(w, req)
		})
		l := r.claim(r.client(leaseclient.Config{TracerProvider: tp}), "j")
		time.Sleep(11 * time.Second)
		h := http.Header{}
		l.Header(h)
		if err := l.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
		names := map[string]string{"lease claim": wire.PathClaim, "lease renew": wire.PathRenewLeases, "lease release": wire.PathRelease}
		for _, s := range spans.GetSpans() {
			path, ok := names[s.Name]
			if !ok {
				t.Errorf("a span %q", s.Name)
			}
			delete(names, s.Name)
			if !strings.Contains(parents[path], s.SpanContext.SpanID().String()) {
				t.Errorf("%s: the server saw %q", s.Name, parents[path])
			}
			if strings.Contains(fmt.Sprint(s.Attributes), h.Get(wire.HeaderLease)) {
				t.Errorf("%s holds the lease id", s.Name)
			}
		}
		if len(names) != 0 {
			t.Errorf("missing: %v", names)
		}
	})
}
