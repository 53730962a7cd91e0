package proxy

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/fenceproxy/fenceproxy/internal/wire"
)

// checkUpgrade refuses every upgrade but the WebSocket handshake (RFC 6455, section 4.1) on a
// route that allows it: after any other the bytes would pass the fence unread.
func checkUpgrade(rt *route, r *http.Request) error {
	switch h := r.Header; {
	case h["Upgrade"] == nil:
		return nil
	case !rt.WebSocket:
		return errUpgrade
	case !isWebSocket(h):
		return errNotWebSocket
	case r.Method != http.MethodGet, r.ProtoMajor != 1, r.ProtoMinor < 1, r.ContentLength != 0,
		len(h["Sec-Websocket-Version"]) != 1, h["Sec-Websocket-Version"][0] != "13",
		len(h["Sec-Websocket-Key"]) != 1, !isNonce(h["Sec-Websocket-Key"][0]):
		return errHandshake
	}
	return nil
}

// isWebSocket reports whether a head asks for, or grants, an upgrade to WebSocket and to
// nothing else.
func isWebSocket(h http.Header) bool {
	u := h["Upgrade"]
	return len(u) == 1 && strings.EqualFold(u[0], "websocket") && names(h["Connection"], "upgrade")
}

// isNonce reports whether s is 16 bytes in base64.
func isNonce(s string) bool {
	b, err := base64.StdEncoding.DecodeString(s)
	return err == nil && len(b) == 16
}

// askUpgrade puts back what outHeader takes out of every request.
func askUpgrade(h http.Header) {
	h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
}

// checkStatus refuses a reply whose status is none, and a change of protocols that nobody
// asked for.
func (ex *exchange) checkStatus(res *http.Response) error {
	switch s := res.StatusCode; {
	case s == http.StatusSwitchingProtocols && ex.upgrade && isWebSocket(res.Header):
		if _, ok := res.Body.(duplex); ok {
			return nil
		}
		return errSwitch
	case s == http.StatusSwitchingProtocols:
		return errSwitch
	case s < 200 || s > 999:
		return errStatus
	}
	return nil
}

// switching is the head with which the caller's connection becomes a tunnel. The server
// does not write it, for the connection is not the server's any more.
func (ex *exchange) switching(res *http.Response) []byte {
	h := make(http.Header, len(res.Header)+4)
	copyReplyHeader(h, res.Header)
	delete(h, "Content-Length")
	h["Connection"], h["Upgrade"] = []string{"Upgrade"}, res.Header["Upgrade"]
	floor := ex.floor()
	if ex.rt.Fencing != FencingOff {
		ex.fenceHeaders(h, decisionForwarded, floor)
	}
	ex.span.SetFence(ex.fence.jobID, uint64(ex.fence.generation), uint64(floor), wire.DecisionForwarded, "", "")
	ex.span.SetWouldRefuse(ex.would)
	ex.span.SetStatus(res.StatusCode)
	var b bytes.Buffer
	b.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = h.Write(&b) // a buffer does not fail
	b.WriteString("\r\n")
	return b.Bytes()
}
