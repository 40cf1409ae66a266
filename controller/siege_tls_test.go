package controller

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"weir/datapath/testnet"
)

// sign makes a certificate of these names, by itself if by is nil, and writes NAME.pem and NAME.key.
func (r *racks) sign(tb testing.TB, name string, by *tls.Certificate, until time.Time, names ...string) *tls.Certificate {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	want := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: names,
		NotBefore: until.Add(-2 * time.Hour), NotAfter: until, IsCA: by == nil, BasicConstraintsValid: true,
	}
	issuer, signer := want, any(key)
	if by != nil {
		issuer, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, want, issuer, &key.PublicKey, signer)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	pub := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	sec := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	for file, b := range map[string][]byte{name + ".pem": pub, name + ".key": sec} {
		if err := os.WriteFile(r.Path(file), b, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	pair, err := tls.X509KeyPair(pub, sec)
	if err != nil {
		tb.Fatal(err)
	}
	return &pair
}

// shows connects with a certificate, none if it is nil, and then behaves as an honest switch of that datapath id. It
// gives the controller's certificate, and ends with the connection.
func (r *racks) shows(tb testing.TB, own *tls.Certificate, id uint64) *x509.Certificate {
	tb.Helper()
	var nc net.Conn
	r.fabric.Must(tb, func() (err error) { nc, err = net.Dial("tcp4", siegeAddress); return err })
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(testnet.Patience)); err != nil {
		tb.Fatal(err)
	}
	c := &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if own == nil {
			return &tls.Certificate{}, nil
		}
		return own, nil // whether the controller asked for such a one or not
	}}
	t := tls.Client(nc, c)
	p := newRemote(t)
	_ = p.be(model{id: id, ports: 1, joined: func() { _ = nc.Close() }})
	if peers := t.ConnectionState().PeerCertificates; len(peers) > 0 {
		return peers[0]
	}
	return nil
}

// Open vSwitch over TLS is served. A peer with a wrong certificate, without one, or without TLS is refused and counted. The
// controller's certificate is renewed while it runs.
func TestControllerTLS(t *testing.T) {
	r := newRacks(t, 1, 1, 1)
	hour := time.Now().Add(time.Hour)
	ours, theirs := r.sign(t, "ca", nil, hour), r.sign(t, "other-ca", nil, hour)
	r.sign(t, "controller", ours, hour)
	r.sign(t, "switches", ours, hour, "0000000000000001", "0000000000000065")
	seven := r.sign(t, "seven", ours, hour, "0000000000000007")
	foreign, expired := r.sign(t, "foreign", theirs, hour, "0000000000000007"), r.sign(t, "expired", ours, time.Now().Add(-time.Minute), "0000000000000007")
	file := strings.NewReplacer("DIR", r.Dir).Replace("tls: {ca: DIR/ca.pem, certificate: DIR/controller.pem, key: DIR/controller.key, named: true}\n")
	r.controller = r.start("test", siegeAddress, file)
	testnet.Until(t, "the controller is active", func() bool { s := r.status(t); return s != nil && s.Active == "" })
	r.Vsctl(t, "set-ssl", r.Path("switches.key"), r.Path("switches.pem"), r.Path("ca.pem"))
	for _, b := range r.bridges() {
		r.Vsctl(t, "set-controller", b, "ssl:"+siegeAddress, "--", "set", "controller", b, "max_backoff=1000")
	}
	r.settled(t, 1)
	for _, own := range []*tls.Certificate{nil, foreign, expired} {
		r.shows(t, own, 7)
	}
	var plain *remote
	r.fabric.Must(t, func() (err error) { plain, err = dialFrom("127.0.0.1"); return err })
	_ = plain.be(model{id: 7, ports: 1})
	r.shows(t, seven, 1) // an honest certificate, another's name
	var s *Status
	testnet.Until(t, "all are refused", func() bool {
		s = r.status(t)
		return s != nil && s.Peers.Ended["tls"] >= 4 && s.Peers.Ended["not_admitted"] >= 1
	})
	if s.Peers.Ended["tls"] != 4 || s.Peers.Ended["not_admitted"] != 1 || len(s.Forward.Switches) != 2 || !s.Well() {
		t.Errorf("%+v, %d switches", s.Peers, len(s.Forward.Switches))
	}
	log := r.controller.Log.String()
	for _, why := range []string{"didn't provide a certificate", "unknown authority", "expired", "does not look like a TLS handshake", "not for 0000000000000001"} {
		if !strings.Contains(log, why) {
			t.Errorf("the log does not say %q", why)
		}
	}
	first := r.shows(t, seven, 7)
	if first == nil {
		t.Fatal("an honest switch is not let in")
	}
	renewed := r.sign(t, "controller", ours, hour)
	testnet.Until(t, "the new certificate", func() bool { return r.shows(t, seven, 7).SerialNumber.Cmp(renewed.Leaf.SerialNumber) == 0 })
	if err := os.WriteFile(r.Path("controller.key"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	testnet.Until(t, "a bad file to be noticed", func() bool {
		if r.shows(t, seven, 7).SerialNumber.Cmp(renewed.Leaf.SerialNumber) != 0 {
			t.Fatal("another certificate is shown")
		}
		return strings.Contains(r.controller.Log.String(), "new certificates cannot be used")
	})
	r.reach(t)
}
