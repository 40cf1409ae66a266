package channel

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/testlog"
	"weir/openflow"
)

// authority signs certificates for a test.
type authority struct {
	t    *testing.T
	dir  string
	name string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir(), name: name}
	a.cert, a.key = a.sign("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign writes NAME.pem and NAME.key. Without times in the template the certificate is valid for an hour around now.
func (a *authority) sign(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: a.name + " " + name}
	if c.NotAfter.IsZero() {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		a.file(name + ".pem"): {Type: "CERTIFICATE", Bytes: der}, a.file(name + ".key"): {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return signed, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// files are those of the holder of a certificate who trusts this authority.
func (a *authority) files(name string) Certificates {
	return Certificates{CA: a.file("ca.pem"), Certificate: a.file(name + ".pem"), Key: a.file(name + ".key")}
}

// loopback serves on a real socket.
func loopback(t *testing.T, config Config) (s *Server, address string, log *testlog.Log, h *recorder, stop func()) {
	t.Helper()
	log, h = new(testlog.Log), newRecorder()
	config.Handler, config.Log = h, slog.New(slog.NewTextHandler(log, nil))
	s, err := NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return s, l.Addr().String(), log, h, stop
}

func TestTLS(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	ours.sign("controller", &x509.Certificate{})
	ours.sign("switch", &x509.Certificate{})
	ours.sign("server", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	ours.sign("expired", &x509.Certificate{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)})
	ours.sign("early", &x509.Certificate{NotBefore: time.Now().Add(time.Hour), NotAfter: time.Now().Add(2 * time.Hour)})
	theirs.sign("switch", &x509.Certificate{})
	listen, err := ServerTLS(ours.files("controller"), nil)
	if err != nil {
		t.Fatal(err)
	}
	client := func(f Certificates) *tls.Config {
		f.CA = ours.file("ca.pem")
		c, err := ClientTLS(f, "")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	none := client(ours.files("switch"))
	none.Certificates = nil
	foreign := client(theirs.files("switch"))
	shown := foreign.Certificates[0] // whether the server asked for such a one or not
	foreign.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
	old := client(ours.files("switch"))
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	last12 := client(ours.files("switch"))
	last12.MaxVersion = tls.VersionTLS12
	for name, c := range map[string]struct {
		config *tls.Config // nil: plain TCP
		reason string      // "": let in
	}{
		"good":          {client(ours.files("switch")), ""},
		"good, TLS 1.2": {last12, ""},
		"none":          {none, "didn't provide a certificate"},
		"foreign":       {foreign, "signed by unknown authority"},
		"expired":       {client(ours.files("expired")), "expired"},
		"not yet valid": {client(ours.files("early")), "not yet valid"},
		"for servers":   {client(ours.files("server")), "incompatible key usage"},
		"TLS 1.1":       {old, "unsupported versions"},
		"no TLS":        {nil, "does not look like a TLS handshake"},
	} {
		t.Run(name, func(t *testing.T) {
			s, address, log, h, stop := loopback(t, Config{TLS: listen})
			nc, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			if c.config != nil {
				nc = tls.Client(nc, c.config)
			}
			f := &fakeSwitch{t: t, nc: nc}
			if c.reason == "" {
				f.greet(7)
				conn := <-h.ups
				if got := conn.Certificate(); got == nil || got.Subject.CommonName != "ours switch" {
					t.Errorf("certificate %v", got)
				}
				f.live(nil)
				if err := conn.Barrier(t.Context()); err != nil {
					t.Error(err)
				}
				return
			}
			_, _ = nc.Write(hello(4)) // with TLS 1.3 a client learns of it later
			if got := f.hangup(); len(got) > 0 {
				t.Errorf("let in: got %v", got)
			}
			stop() // it is over when Serve has returned
			if st := s.Stats(); st.Ended[CauseTLS] != 1 || st.Switches != 0 {
				t.Errorf("%+v", st)
			}
			has(t, log.String(), c.reason, "cause=tls", "127.0.0.1")
		})
	}
}

// TestTLS_Renewed: certificates that are replaced are used for the next connection; with files that cannot be, or
// not yet, the old ones stay.
func TestTLS_Renewed(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	for _, a := range []*authority{ours, theirs} {
		a.sign("controller", &x509.Certificate{})
	}
	log := new(testlog.Log)
	config, err := ServerTLS(ours.files("controller"), slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	r := &renewal{files: ours.files("controller"), log: slog.New(slog.NewTextHandler(log, nil)), config: config, stamps: ours.files("controller").stamps(), looked: now}
	next := func() *tls.Config { now = now.Add(renewEvery); return r.current(now) }
	if next() != config {
		t.Error("read again, and nothing had changed")
	}
	ours.sign("controller", &x509.Certificate{})
	if r.current(now.Add(renewEvery-1)) != config {
		t.Error("looked at sooner than it may")
	}
	second := next()
	if second == config || second.Certificates[0].Leaf.SerialNumber.Cmp(config.Certificates[0].Leaf.SerialNumber) <= 0 || second.ClientAuth != tls.RequireAndVerifyClientCert {
		t.Error("the new certificate is not used")
	}
	has(t, log.String(), "certificates read again", "ours controller")
	// Half of a renewal: another key, the old certificate.
	key, err := os.ReadFile(theirs.file("controller.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]byte{key, nil, []byte("no key")} {
		if err := os.WriteFile(ours.file("controller.key"), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		before := strings.Count(log.String(), "cannot be used")
		for range 3 {
			if next() != second {
				t.Error("what cannot be used replaced what could")
			}
		}
		if n := strings.Count(log.String(), "cannot be used") - before; n != 1 {
			t.Errorf("said %d times", n)
		}
	}
	if err := os.Remove(ours.file("controller.key")); err != nil {
		t.Fatal(err)
	}
	if next() != second {
		t.Error("without a key file the old one does not stay")
	}
	ours.sign("controller", &x509.Certificate{})
	if third := next(); third == second {
		t.Error("files that are well again are not used")
	}
	// Whom to trust is renewed, too.
	pem, err := os.ReadFile(theirs.file("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ours.file("ca.pem"), pem, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.cert.Verify(x509.VerifyOptions{Roots: next().ClientCAs, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		t.Errorf("the new authority is not trusted: %v", err)
	}
}

// TestTLS_Dial: a switch that listens must show a certificate too, and one for its name where a name is given.
func TestTLS_Dial(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	ours.sign("controller", &x509.Certificate{})
	for _, a := range []*authority{ours, theirs} {
		a.sign("switch", &x509.Certificate{DNSNames: []string{"leaf1.example"}})
	}
	ours.sign("expired", &x509.Certificate{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)})
	theirs.sign("controller", &x509.Certificate{})
	for name, c := range map[string]struct {
		shows  Certificates
		as     Certificates
		name   string
		reason string
	}{
		"good":              {ours.files("switch"), ours.files("controller"), "", ""},
		"good, by name":     {ours.files("switch"), ours.files("controller"), "leaf1.example", ""},
		"another switch":    {ours.files("switch"), ours.files("controller"), "leaf2.example", "leaf2.example"},
		"another authority": {theirs.files("switch"), ours.files("controller"), "", "unknown authority"},
		"expired":           {ours.files("expired"), ours.files("controller"), "", "expired"},
		"we are foreign":    {ours.files("switch"), theirs.files("controller"), "", "remote error"},
	} {
		t.Run(name, func(t *testing.T) {
			c.shows.CA, c.as.CA = ours.file("ca.pem"), ours.file("ca.pem")
			shows, err := ServerTLS(c.shows, nil)
			if err != nil {
				t.Fatal(err)
			}
			l, err := tls.Listen("tcp", "127.0.0.1:0", shows)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			accepted := make(chan struct{})
			go func() {
				defer close(accepted)
				nc, err := l.Accept()
				if err != nil {
					return
				}
				f := &fakeSwitch{t: t, nc: nc}
				if h, _, err := f.read(); err == nil && h.Type == openflow.TypeHello {
					f.greetRest(9)
					_ = f.hangup()
				}
				_ = nc.Close()
			}()
			config, err := ClientTLS(c.as, c.name)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := Dial(t.Context(), "tcp", l.Addr().String(), Config{TLS: config})
			if c.reason == "" {
				if err != nil {
					t.Fatal(err)
				}
				if conn.DatapathID() != 9 {
					t.Errorf("datapath id %d", conn.DatapathID())
				}
				conn.Close()
				<-conn.gone
			} else {
				var why *CloseError
				if !errors.As(err, &why) || why.Cause != CauseTLS {
					t.Errorf("%v, want a CloseError for TLS", err)
				}
				if err != nil {
					has(t, err.Error(), c.reason)
				}
			}
			<-accepted
		})
	}
}

// TestTLS_Unsafe: configurations that would let in anybody are refused before anybody comes.
func TestTLS_Unsafe(t *testing.T) {
	for _, c := range []*tls.Config{
		{}, {MinVersion: tls.VersionTLS12}, {MinVersion: tls.VersionTLS12, ClientAuth: tls.VerifyClientCertIfGiven},
		{MinVersion: tls.VersionTLS11, ClientAuth: tls.RequireAndVerifyClientCert},
	} {
		s, err := NewServer(Config{TLS: c})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Serve(t.Context(), newPipes()); err == nil {
			t.Errorf("served with %+v", c)
		}
	}
	for _, c := range []*tls.Config{{}, {MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}} {
		if _, err := Dial(t.Context(), "tcp", "127.0.0.1:1", Config{TLS: c}); err == nil || errors.As(err, new(*net.OpError)) {
			t.Errorf("dialled with %+v: %v", c, err)
		}
	}
	a := newAuthority(t, "ours")
	a.sign("x", &x509.Certificate{})
	for _, f := range []Certificates{
		{CA: a.file("x.key"), Certificate: a.file("x.pem"), Key: a.file("x.key")}, // no certificate in it
		{CA: a.file("ca.pem"), Certificate: a.file("x.pem"), Key: a.file("ca.key")},
		{CA: a.file("missing"), Certificate: a.file("x.pem"), Key: a.file("x.key")},
	} {
		if _, err := ServerTLS(f, nil); err == nil {
			t.Errorf("%+v was taken", f)
		}
	}
}

// TestKeep: a switch that listens is dialled again whenever it goes, until the context ends.
func TestKeep(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := newRecorder()
	s, err := NewServer(Config{Handler: h})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Keep(ctx, "tcp", l.Addr().String()) }()
	accept := func() *fakeSwitch {
		nc, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return &fakeSwitch{t: t, nc: nc}
	}
	_ = accept().nc.Close() // before hello
	f := accept()
	f.greet(1)
	<-h.ups
	_ = f.nc.Close() // later
	f = accept()
	f.greet(1)
	c := <-h.ups
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	<-c.gone
	if st := s.Stats(); st.Connections != 0 || st.Ended[CauseShutdown] != 1 || st.Accepted != 3 {
		t.Errorf("%+v", st)
	}
}
