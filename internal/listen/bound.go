package listen

import (
	"net"
	"net/http"
)

// Bound makes a listener keep at most so many connections open at a time, as MaxConns does for a
// [Listener]: at the bound the one that has been idle for longest makes room. Zero means no bound.
// The server that accepts from it must call Follow for each change of a connection's state, else
// every connection counts as idle. TLS goes on top of it.
func Bound(ln net.Listener, most int) net.Listener {
	return &bounded{Listener: ln, conns: register{most: most}}
}

type bounded struct {
	net.Listener
	conns register
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return b.conns.add(c), nil
}

// Follow notes what a connection is used for. It is meant for http.Server.ConnState, of a server of
// [Bound]; a [NewServer] has it.
func Follow(c net.Conn, state http.ConnState) { connState(c, state) }
