package daemon

import (
	"crypto/tls"
	"net/http"
	"strings"
	"time"
)

// ControlAs makes a client that shows a bearer token, if it is not empty, and speaks TLS, if secure is not nil.
func (d *Daemon) ControlAs(token string, secure *tls.Config) *Control {
	base := d.ControlURL()
	if secure != nil {
		base = strings.Replace(base, "http://", "https://", 1)
	}
	return &Control{base: base, token: token, http: &http.Client{
		Transport: &http.Transport{TLSClientConfig: secure, MaxIdleConnsPerHost: 64, IdleConnTimeout: 5 * time.Second},
	}}
}

// SecureWriter makes a writer that speaks TLS.
func (d *Daemon) SecureWriter(secure *tls.Config) *Writer {
	w := NewWriter("https://" + d.DataAddr())
	w.transport.TLSClientConfig = secure
	return w
}
