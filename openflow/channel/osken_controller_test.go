package channel

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"weir/openflow"
	"weir/openflow/oftest"
)

// TestOskenController: os-ken's own controller has a switch made of this package's codec. It sends every message of OpenFlow
// 1.3 that a controller sends, and they arrive unchanged. The switch's messages reach os-ken's application unchanged. os-ken
// connects to a switch that listens without TLS only.
func TestOskenController(t *testing.T) {
	oftest.OskenPython(t)
	a := newAuthority(t, "ours")
	a.sign("controller", &x509.Certificate{})
	a.sign("switch", &x509.Certificate{})
	files := a.files("controller")
	config, err := ClientTLS(a.files("switch"), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("TCP", func(t *testing.T) {
		peer := startOsken(t, "osken_controller.py", "listen", "", nil)
		meetOskenController(t, peer, dialSwitch(t, peer.listens(), nil))
	})
	t.Run("TLS", func(t *testing.T) {
		peer := startOsken(t, "osken_controller.py", "listen", "", &files)
		meetOskenController(t, peer, dialSwitch(t, peer.listens(), config))
	})
	t.Run("TLS, a foreign switch", func(t *testing.T) {
		foreign := newAuthority(t, "theirs")
		foreign.sign("switch", &x509.Certificate{})
		shown, err := tls.LoadX509KeyPair(foreign.file("switch.pem"), foreign.file("switch.key"))
		if err != nil {
			t.Fatal(err)
		}
		other := config.Clone()
		other.Certificates = nil
		other.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
		peer := startOsken(t, "osken_controller.py", "listen", "", &files)
		f := dialSwitch(t, peer.listens(), other)
		if m := f.hangup(); len(m) > 0 {
			t.Errorf("os-ken says %v to a switch of another authority: this is no test of certificates", m)
		}
	})
	t.Run("TCP, os-ken dials", func(t *testing.T) {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		peer := startOsken(t, "osken_controller.py", "dial", port, nil)
		nc, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		peer.next("listens")
		meetOskenController(t, peer, newSwitch(t, nc))
	})
}

// dialSwitch connects a switch that is only a codec.
func dialSwitch(t *testing.T, address string, config *tls.Config) *fakeSwitch {
	t.Helper()
	nc, err := net.Dial("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		nc = tls.Client(nc, config)
	}
	return newSwitch(t, nc)
}

func newSwitch(t *testing.T, nc net.Conn) *fakeSwitch {
	t.Helper()
	t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(oskenPatience)); err != nil {
		t.Fatal(err)
	}
	return &fakeSwitch{t: t, nc: nc}
}

// codecTalk is a conversation with a controller of os-ken.
type codecTalk struct {
	t              *testing.T
	peer           *oskenPeer
	at             *fakeSwitch
	orders, answer tally
}

func meetOskenController(t *testing.T, peer *oskenPeer, f *fakeSwitch) {
	t.Helper()
	k := &codecTalk{t: t, peer: peer, at: f, orders: tally{}, answer: tally{}}
	k.greet()
	xid := uint32(1000)
	for _, e := range exchanges() {
		at := uint32(0)
		if e.ask != nil {
			xid++
			at = xid
			peer.do("send", at, e.ask)
			if got := k.ordered(e.ask); got != at {
				t.Errorf("%s came with transaction id %d, want %d", e.ask, got, at)
			}
		}
		for _, m := range e.give {
			k.says(at, m)
		}
		if m, ok := first(e).(*openflow.EchoRequest); ok {
			k.ordered(&openflow.EchoReply{Data: m.Data})
		}
	}
	k.orders.every(t, true)
	k.answer.every(t, false)
}

// greet is what os-ken does by itself: hello, features, ports.
func (k *codecTalk) greet() {
	k.t.Helper()
	k.ordered(&openflow.Hello{}) // os-ken writes no bitmap
	k.says(0, &openflow.Hello{Versions: []uint8{openflow.Version13}})
	k.says(k.ordered(&openflow.FeaturesRequest{}), peerFeatures)
	k.says(k.ordered(&openflow.MultipartRequest{Type: openflow.MultipartPortDesc}),
		&openflow.MultipartReply{Type: openflow.MultipartPortDesc, Body: openflow.PortDescReply{peerPort}})
	k.peer.next("up")
}

// ordered takes a message of os-ken, which must be as it was meant.
func (k *codecTalk) ordered(m openflow.Message) (xid uint32) {
	k.t.Helper()
	h, got, err := k.at.read()
	if err != nil {
		k.t.Fatalf("want %s: %v", m, err)
	}
	equal(k.t, "os-ken's", m, got)
	k.orders.count(m)
	return h.XID
}

// says sends a message, which must reach os-ken's application as it was meant.
func (k *codecTalk) says(xid uint32, m openflow.Message) {
	k.t.Helper()
	k.at.send(xid, m)
	got := k.peer.next("got")
	if got.Type != m.MessageType() || got.XID != xid {
		k.t.Errorf("os-ken got %s with transaction id %d, want %s and %d", got.Type, got.XID, m.MessageType(), xid)
	}
	got.same(k.t, m)
	k.answer.count(m)
}

// first returns what a switch says in an exchange that it begins.
func first(e exchange) openflow.Message {
	if e.ask != nil {
		return nil
	}
	return e.give[0]
}
