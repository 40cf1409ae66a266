package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bus/weirv1"
	"weir/internal/replace"
)

func newCA(t *testing.T) *CA {
	t.Helper()
	ca := &CA{Dir: filepath.Join(t.TempDir(), "ca")}
	if err := ca.Create(); err != nil {
		t.Fatal(err)
	}
	return ca
}

func enrol(t *testing.T, ca *CA, id string, validity time.Duration) Files {
	t.Helper()
	who, err := ParseIdentity(id)
	if err != nil {
		t.Fatal(err)
	}
	var addresses []string
	if who.Role == Bus {
		addresses = []string{"127.0.0.1", "bus.example"}
	}
	dir := t.TempDir()
	if _, err := ca.Enrol(who, dir, addresses, validity); err != nil {
		t.Fatal(err)
	}
	return In(dir, who.Name)
}

func load(t *testing.T, f Files) *Keys {
	t.Helper()
	k, err := Load(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// handshake connects a client to a server, and returns the errors of both.
func handshake(t *testing.T, client, server *Keys, roles ...Role) (clientErr, serverErr error) {
	t.Helper()
	a, b := net.Pipe()
	own, _ := client.Own()
	config := client.ClientTLS()
	config.Certificates, config.ServerName = []tls.Certificate{own}, "127.0.0.1"
	config.RootCAs, _ = client.Roots()
	done := make(chan error)
	go func() {
		c := tls.Client(a, config)
		err := c.Handshake()
		if err == nil {
			_, err = c.Read(make([]byte, 1)) // with TLS 1.3 the refusal comes after the handshake
		}
		_ = a.Close()
		done <- err
	}()
	s := tls.Server(b, server.ServerTLS(nil, roles...))
	if serverErr = s.Handshake(); serverErr == nil {
		_, serverErr = s.Write([]byte{1})
	}
	_ = b.Close()
	return <-done, serverErr
}

func TestIdentity(t *testing.T) {
	for _, text := range []string{"agent/sw1", "controller/c1", "observer/op", "operator/alice", "bus/b1"} {
		if id, err := ParseIdentity(text); err != nil || id.String() != text || id.URI() != "weir:"+text {
			t.Errorf("%s: %v, %v", text, id, err)
		}
	}
	for _, text := range []string{"", "agent", "agent/", "root/x", "agent/a/b", "agent/a.b", "agent/*", "agent/>", "Agent/a", "agent/A", "agent/-a", "agent/" + strings.Repeat("a", 64)} {
		if id, err := ParseIdentity(text); err == nil {
			t.Errorf("%q is %v", text, id)
		}
	}
	uri := func(s string) *url.URL { u, _ := url.Parse(s); return u }
	for _, c := range []*x509.Certificate{
		{}, {URIs: []*url.URL{uri("weir:agent/a"), uri("weir:controller/a")}}, {URIs: []*url.URL{uri("http://agent/a")}}, {URIs: []*url.URL{uri("weir://agent/a")}},
		{URIs: []*url.URL{uri("weir:agent/a")}, EmailAddresses: []string{"weir:controller/c"}},
	} {
		if id, err := IdentityOf(c); err == nil {
			t.Errorf("%v %v is %v", c.URIs, c.EmailAddresses, id)
		}
	}
}

// Names of certificates and of messages have the same rule.
func TestIdentity_NamesAreThoseOfMessages(t *testing.T) {
	for _, name := range []string{"a", "", "-", "a-", "A", "a.b", "ä", strings.Repeat("a", 63), strings.Repeat("a", 64), "a\n", "0"} {
		if validName(name) != weirv1.ValidName(name) {
			t.Errorf("%q: the two rules differ", name)
		}
	}
}

func TestCA_FilesAreSecret(t *testing.T) {
	ca := newCA(t)
	f := enrol(t, ca, "bus/b1", 0)
	for _, dir := range []string{ca.Dir, filepath.Dir(f.Own)} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err == nil && info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := ca.Create(); err == nil {
		t.Error("a second CA replaces the first")
	}
	if err := os.Chmod(f.Own, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(f, nil); err == nil || !strings.Contains(err.Error(), "0600") {
		t.Errorf("a key that others can read: %v", err)
	}
}

func TestCA_RefusesAddresses(t *testing.T) {
	ca := newCA(t)
	if _, err := ca.Enrol(Identity{Agent, "a"}, t.TempDir(), []string{"10.0.0.1"}, 0); err == nil {
		t.Error("an agent with an address")
	}
	if _, err := ca.Enrol(Identity{Bus, "b"}, t.TempDir(), nil, 0); err == nil {
		t.Error("a server without an address")
	}
	if _, err := ca.Enrol(Identity{"root", "b"}, t.TempDir(), nil, 0); err == nil {
		t.Error("an unknown role")
	}
}

// Each row is a client that the server refuses, next to one that it accepts.
func TestVerify(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	server := load(t, enrol(t, ca, "bus/b1", 0))
	good := load(t, enrol(t, ca, "agent/a", 0))
	if c, s := handshake(t, good, server, Agent); c != nil || s != nil {
		t.Fatalf("an honest agent: %v, %v", c, s)
	}
	if _, s := handshake(t, good, server, Controller); !errors.Is(s, ErrRole) {
		t.Errorf("an agent as a controller: %v", s)
	}
	if c, _ := handshake(t, good, good, Agent); c == nil {
		t.Error("an agent's certificate works for a server")
	}
	stranger := load(t, enrol(t, other, "agent/a", 0))
	stranger.loaded.pool = good.loaded.pool // it trusts our server
	var unknown x509.UnknownAuthorityError
	if _, s := handshake(t, stranger, server, Agent); !errors.As(s, &unknown) {
		t.Errorf("another CA: %v", s)
	}
	if c, _ := handshake(t, good, load(t, enrol(t, other, "bus/b1", 0)), Agent); c == nil {
		t.Error("a server of another CA is accepted")
	}
	past := &CA{Dir: ca.Dir, Now: func() time.Time { return time.Now().Add(-48 * time.Hour) }}
	var invalid x509.CertificateInvalidError
	if _, s := handshake(t, load(t, enrol(t, past, "agent/a", time.Hour)), server, Agent); !errors.As(s, &invalid) || invalid.Reason != x509.Expired {
		t.Errorf("an expired certificate: %v", s)
	}
	future := &CA{Dir: ca.Dir, Now: func() time.Time { return time.Now().Add(48 * time.Hour) }}
	if _, s := handshake(t, load(t, enrol(t, future, "agent/a", time.Hour)), server, Agent); !errors.As(s, &invalid) || invalid.Reason != x509.Expired {
		t.Errorf("a certificate of the future: %v", s)
	}
}

func TestRevoke(t *testing.T) {
	ca := newCA(t)
	b := enrol(t, ca, "bus/b1", 0)
	server := load(t, b)
	a := load(t, enrol(t, ca, "agent/a", 0))
	again := load(t, enrol(t, ca, "agent/a", 0))
	own, _ := a.Own()
	if n, err := ca.Revoke(own.Leaf.SerialNumber.Text(16)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if valid, err := ca.Valid(); err != nil || slices.Contains(valid, Identity{Agent, "a"}) || !slices.Contains(valid, Identity{Bus, "b1"}) {
		t.Errorf("valid: %v, %v", valid, err)
	}
	list, err := os.ReadFile(filepath.Join(ca.Dir, "revoked"))
	if err != nil {
		t.Fatal(err)
	}
	if err := replace.Bytes(b.Revoked, 0o600, list); err != nil {
		t.Fatal(err)
	}
	if server.Look() != 1 {
		t.Fatal("the list is not read again")
	}
	if _, s := handshake(t, a, server, Agent); !errors.Is(s, ErrRevoked) {
		t.Errorf("revoked: %v", s)
	}
	if c, s := handshake(t, again, server, Agent); c != nil || s != nil {
		t.Errorf("another certificate of the agent: %v, %v", c, s)
	}
	if n, err := ca.Revoke("agent/a"); n != 1 || err != nil {
		t.Errorf("%d of the rest are revoked: %v", n, err)
	}
	if _, err := ca.Revoke("agent/a"); err == nil {
		t.Error("nothing is left to revoke, and no error")
	}
	// An unusable list keeps the one before: nobody becomes valid by it.
	if err := replace.Bytes(b.Revoked, 0o600, []byte("no number\n")); err != nil {
		t.Fatal(err)
	}
	server.Look()
	if _, s := handshake(t, a, server, Agent); !errors.Is(s, ErrRevoked) {
		t.Errorf("after an unusable list: %v", s)
	}
}

// Both CAs are accepted between Rotate and Retire, and then the new one only.
func TestRotate(t *testing.T) {
	ca := newCA(t)
	b := enrol(t, ca, "bus/b1", 0)
	server, before := load(t, b), load(t, enrol(t, ca, "agent/a", 0))
	if err := ca.Rotate(); err != nil {
		t.Fatal(err)
	}
	after := load(t, enrol(t, ca, "agent/b", 0))
	both := load(t, enrol(t, ca, "bus/b2", 0))
	for _, k := range []*Keys{before, after} {
		if _, s := handshake(t, k, both, Agent); s != nil && k == after {
			t.Errorf("%v: %v", k.Identity(), s)
		}
	}
	own, _ := before.Own()
	if err := both.Verify(own.Leaf, Agent); err != nil {
		t.Errorf("a certificate of the old CA: %v", err)
	}
	own, _ = after.Own()
	if err := server.Verify(own.Leaf, Agent); err == nil {
		t.Error("a server that knows the old CA only accepts the new one")
	}
	if err := ca.Retire(); err != nil {
		t.Fatal(err)
	}
	newest := load(t, enrol(t, ca, "bus/b3", 0))
	own, _ = before.Own()
	if err := newest.Verify(own.Leaf, Agent); err == nil {
		t.Error("the old CA is retired, and its certificate is accepted")
	}
	own, _ = after.Own()
	if err := newest.Verify(own.Leaf, Agent); err != nil {
		t.Errorf("the new CA: %v", err)
	}
}
