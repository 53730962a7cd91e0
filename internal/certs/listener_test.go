package certs

import (
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/certs/certstest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is a listener whose files a test changes.
type place struct {
	*testing.T
	dir    string
	files  ServerFiles
	listen *Listener
	addr   string
	// states are of the connections that were let in.
	states chan tls.ConnectionState
}

func open(t *testing.T, server certstest.Pair, clients *certstest.Authority, demand tls.ClientAuthType) *place {
	p := &place{T: t, dir: t.TempDir(), states: make(chan tls.ConnectionState, 16)}
	p.files.Cert, p.files.Key = server.Write(t, p.dir, "server")
	if clients != nil {
		p.files.ClientCA = filepath.Join(p.dir, "clients.pem")
		certstest.WriteFile(t, p.files.ClientCA, clients.PEM())
	}
	p.listen = NewListener(p.read(), demand, "h2", "http/1.1")
	ln, err := tls.Listen("tcp", "127.0.0.1:0", p.listen.Config())
	if err != nil {
		t.Fatal(err)
	}
	p.addr = ln.Addr().String()
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.echo(c.(*tls.Conn)) })
		}
	})
	t.Cleanup(func() {
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
	})
	return p
}

// echo answers every byte with itself.
func (p *place) echo(c *tls.Conn) {
	defer c.Close()
	if c.Handshake() != nil {
		return
	}
	p.states <- c.ConnectionState()
	_, _ = io.Copy(c, c) // ends with the client
}

func (p *place) read() *Server {
	p.Helper()
	s, problems := ReadServer(p.files, time.Now())
	if s == nil {
		p.Fatalf("read files: %+v", problems)
	}
	return s
}

// dial connects and exchanges one byte, so that the client has read whatever the server
// had to say: alerts, and session tickets.
func (p *place) dial(config *tls.Config) (*tls.Conn, error) {
	p.Helper()
	raw, err := net.DialTimeout("tcp", p.addr, 10*time.Second)
	if err != nil {
		p.Fatal(err)
	}
	c := tls.Client(raw, config)
	if err := exchange(c); err != nil {
		_ = c.Close() // the error that counts is err
		return nil, err
	}
	p.Cleanup(func() { _ = c.Close() }) // the test may have closed it
	return c, nil
}

func exchange(c *tls.Conn) error {
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte{7}); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

func (p *place) must(config *tls.Config) *tls.Conn {
	p.Helper()
	c, err := p.dial(config)
	if err != nil {
		p.Fatalf("connect: %v", err)
	}
	return c
}

func TestNewFilesServeNewHandshakesAndDropNoConnection(t *testing.T) {
	ca := certstest.NewAuthority(t, "ca")
	p := open(t, ca.Issue("one"), nil, tls.NoClientCert)
	trust := &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost", NextProtos: []string{"h2"}}
	first := p.must(trust)

	ca.Issue("two").Write(t, p.dir, "server")
	p.listen.Use(p.read())
	second := p.must(trust)
	for c, want := range map[*tls.Conn]string{first: "one", second: "two"} {
		if got := c.ConnectionState().PeerCertificates[0].Subject.CommonName; got != want {
			t.Errorf("the certificate is that of %s, want %s", got, want)
		}
		if got := c.ConnectionState().NegotiatedProtocol; got != "h2" {
			t.Errorf("the protocol is %q, want h2", got)
		}
		if err := exchange(c); err != nil {
			t.Errorf("the connection with certificate %s is of no use any more: %v", want, err)
		}
	}
}

func TestAClientWhoseAuthorityIsGoneIsKeptOutAlsoWithATicketFromBefore(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			ca, clients := certstest.NewAuthority(t, "ca"), certstest.NewAuthority(t, "clients")
			p := open(t, ca.Issue("server"), clients, tls.RequireAndVerifyClientCert)
			client := &tls.Config{
				RootCAs: ca.Pool(), ServerName: "localhost", MaxVersion: version,
				Certificates: []tls.Certificate{clients.Issue("worker").TLS(t)}, ClientSessionCache: tls.NewLRUClientSessionCache(4),
			}
			p.must(client)
			state := <-p.states
			if resumed := p.must(client).ConnectionState().DidResume; !resumed {
				t.Fatal("the client resumed no session, so this test would prove nothing")
			}
			<-p.states
			if !p.listen.Admits(&state) {
				t.Error("a client whose authority is there is not admitted")
			}

			certstest.WriteFile(t, p.files.ClientCA, certstest.NewAuthority(t, "others").PEM())
			p.listen.Use(p.read())
			if _, err := p.dial(client); err == nil {
				t.Error("a client whose authority is gone was let in")
			}
			if p.listen.Admits(&state) {
				t.Error("its open connection still counts")
			}
		})
	}
}

func TestWhoHasNoCertificateIsLetInOnlyWhereThatIsNotDemanded(t *testing.T) {
	ca, clients := certstest.NewAuthority(t, "ca"), certstest.NewAuthority(t, "clients")
	for demand, welcome := range map[tls.ClientAuthType]bool{tls.RequireAndVerifyClientCert: false, tls.VerifyClientCertIfGiven: true} {
		p := open(t, ca.Issue("server"), clients, demand)
		_, err := p.dial(&tls.Config{RootCAs: ca.Pool(), ServerName: "localhost"})
		if (err == nil) != welcome {
			t.Errorf("%v: got %v", demand, err)
		}
		if p.listen.Admits(&tls.ConnectionState{}) != welcome || p.listen.Admits(nil) {
			t.Errorf("%v: a connection from before is judged otherwise", demand)
		}
		strange := certstest.NewAuthority(t, "strange").Issue("x").TLS(t)
		// Sent although the server does not name its authority.
		send := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &strange, nil }
		if _, err := p.dial(&tls.Config{RootCAs: ca.Pool(), ServerName: "localhost", GetClientCertificate: send}); err == nil {
			t.Errorf("%v: a certificate of an unknown authority was accepted", demand)
		}
	}
}

func TestCertificatesCountForNothingOnceNobodyAsksForThem(t *testing.T) {
	ca, clients := certstest.NewAuthority(t, "ca"), certstest.NewAuthority(t, "clients")
	p := open(t, ca.Issue("server"), clients, tls.RequireAndVerifyClientCert)
	p.must(&tls.Config{RootCAs: ca.Pool(), ServerName: "localhost", Certificates: []tls.Certificate{clients.Issue("worker").TLS(t)}})
	state := <-p.states
	p.files.ClientCA = ""
	p.listen.Use(p.read())
	if p.listen.Admits(&state) {
		t.Error("a connection with a certificate from before still counts as known by it")
	}
	if !p.listen.Admits(nil) || !p.listen.Admits(&tls.ConnectionState{}) {
		t.Error("a connection without a certificate is not admitted")
	}
}

func TestOldVersionsOfTLSAreRefused(t *testing.T) {
	ca := certstest.NewAuthority(t, "ca")
	p := open(t, ca.Issue("server"), nil, tls.NoClientCert)
	old := &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	if _, err := p.dial(old); err == nil {
		t.Error("TLS 1.1 was accepted")
	}
}
