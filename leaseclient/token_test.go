package leaseclient_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/leaseclient"
)

// shown records the Authorization headers that a rig's server sees.
func (r *rig) shown() func() []string {
	var (
		mu  sync.Mutex
		all []string
	)
	api := r.line.handler
	r.line.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		all = append(all, strings.Join(req.Header["Authorization"], "+"))
		mu.Unlock()
		api.ServeHTTP(w, req)
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func TestATokenThatIsReplacedIsUsedFromTheNextCallOn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	put := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("first")
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		shown := r.shown()
		l := r.claim(r.client(leaseclient.Config{TTL: 30 * time.Second, TokenSource: leaseclient.TokenFile(file)}), "j")
		put("second")
		time.Sleep(11 * time.Second)
		synctest.Wait()
		got := shown()
		if len(got) != 2 || got[0] != "Bearer first" || got[1] != "Bearer second" {
			t.Errorf("shown: %q", got)
		}
		if l.State() != leaseclient.Held {
			t.Errorf("%v", l)
		}
	})
}

func TestALeaseOutlivesATokenThatCanNotBeReadForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var (
			mu     sync.Mutex
			broken error
		)
		fail := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			broken = err
		}
		c := r.client(leaseclient.Config{TTL: 30 * time.Second, TokenSource: func() (string, error) {
			mu.Lock()
			defer mu.Unlock()
			return "t0ken", broken
		}})
		l := r.claim(c, "j")
		fail(errors.New("being replaced"))
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if n := len(r.line.seen(wire.PathRenewLeases)); n != 0 || l.Err() != nil {
			t.Errorf("%d calls without a token, %v", n, l.Err())
		}
		fail(nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if l.State() != leaseclient.Held || time.Until(l.Deadline()) < 10*time.Second {
			t.Errorf("%v until %v", l, l.Deadline())
		}
	})
}

func TestTheErrorsOfATokenFileDoNotShowIt(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": " \n", "blank": "s3cret s3cret", "control": "s3cret\x01", "long": strings.Repeat("s3cret", 2000), "beyond": "s3crét"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		token, err := leaseclient.TokenFile(file)()
		if err == nil || token != "" || strings.Contains(err.Error(), "s3cr") || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %q, %v", name, token, err)
		}
	}
	if _, err := leaseclient.TokenFile(filepath.Join(dir, "absent"))(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	for _, cfg := range []leaseclient.Config{{Token: "s3cret s3cret"}, {Token: "s3cret", TokenSource: leaseclient.TokenFile("x")}} {
		if _, err := leaseclient.New(cfg); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v", err)
		}
	}
}
