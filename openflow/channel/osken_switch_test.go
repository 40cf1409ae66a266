package channel

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"weir/openflow"
	"weir/openflow/oftest"
)

// heard is a handler that hands on what comes unasked.
type heard struct {
	Ignore
	ups      chan *Conn
	messages chan openflow.Message
}

func newHeard() *heard {
	return &heard{ups: make(chan *Conn, 10), messages: make(chan openflow.Message, 100)}
}

func (h *heard) Up(c *Conn) { h.ups <- c }

func (h *heard) PacketIn(_ *Conn, in *openflow.PacketIn) {
	mine := *in
	mine.Data, mine.Match = slices.Clone(in.Data), slices.Clone(in.Match)
	h.messages <- &mine
}

func (h *heard) Message(_ *Conn, _ openflow.Header, m openflow.Message) { h.messages <- m }

// oskenLimits leave a peer in Python time; nothing but what a test says is asked.
var oskenLimits = Limits{HandshakeTimeout: oskenPatience, RequestTimeout: oskenPatience, EchoInterval: time.Hour, EchoTimeout: time.Hour}

// TestOskenSwitch: this package is the controller of a switch made of os-ken's parsers, classes and structure formats.
// Every message of OpenFlow 1.3 passes. The controller's messages equal those that os-ken's classes write, byte for byte, and
// its parsers read them, where it has one. Both sides decode the switch's messages to the same values.
func TestOskenSwitch(t *testing.T) {
	oftest.OskenPython(t)
	a := newAuthority(t, "ours")
	a.sign("controller", &x509.Certificate{})
	a.sign("switch", &x509.Certificate{})
	files := a.files("switch")
	listen, err := ServerTLS(a.files("controller"), nil)
	if err != nil {
		t.Fatal(err)
	}
	dial, err := ClientTLS(a.files("controller"), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("TCP", func(t *testing.T) { meetOskenSwitch(t, "dial", Config{}, nil) })
	t.Run("TLS", func(t *testing.T) { meetOskenSwitch(t, "dial", Config{TLS: listen}, &files) })
	t.Run("TCP, dialled", func(t *testing.T) { meetOskenSwitch(t, "listen", Config{}, nil) })
	t.Run("TLS, dialled", func(t *testing.T) { meetOskenSwitch(t, "listen", Config{TLS: dial}, &files) })
}

// oskenTalk is a conversation with a switch of os-ken.
type oskenTalk struct {
	t              *testing.T
	peer           *oskenPeer
	handler        *heard
	conn           *Conn
	orders, answer tally
}

func meetOskenSwitch(t *testing.T, way string, config Config, files *Certificates) {
	h := newHeard()
	config.Handler, config.Log, config.Limits = h, slog.New(slog.NewTextHandler(t.Output(), nil)), oskenLimits
	s, err := NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	var peer *oskenPeer
	if way == "dial" {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- s.Serve(ctx, l) }()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		peer = startOsken(t, "osken_switch.py", way, port, files)
	} else {
		peer = startOsken(t, "osken_switch.py", way, "", files)
		address := peer.listens()
		go func() { ended <- s.Keep(ctx, "tcp4", address) }()
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	k := &oskenTalk{t: t, peer: peer, handler: h, orders: tally{}, answer: tally{}}
	k.greet()
	for _, e := range exchanges() {
		k.exchange(e)
	}
	if st := k.conn.Stats(); k.conn.Err() != nil || st.Undecodable+st.Unknown != 0 || st.Strange != 1 { // the echo reply to nothing
		t.Errorf("%v, %+v", k.conn.Err(), st)
	}
	k.orders.every(t, true)
	k.answer.every(t, false)
}

func (k *oskenTalk) greet() {
	k.t.Helper()
	k.ordered(&openflow.Hello{Versions: []uint8{openflow.Version13}})
	k.says(0, &openflow.Hello{Versions: []uint8{1, openflow.Version13}})
	k.says(k.ordered(&openflow.FeaturesRequest{}), peerFeatures)
	select {
	case k.conn = <-k.handler.ups:
	case <-time.After(oskenPatience):
		k.t.Fatal("the switch does not come up")
	}
	got := k.conn.Features()
	equal(k.t, "features", peerFeatures, &got)
}

// ordered takes a message at the switch: os-ken reads it as ours, and would write the same bytes.
func (k *oskenTalk) ordered(m openflow.Message) (xid uint32) {
	k.t.Helper()
	got := k.peer.next("got")
	if got.Type != m.MessageType() {
		k.t.Fatalf("the switch got %s, want %s", got.Type, m.MessageType())
	}
	if string(got.Fields) != "null" {
		got.same(k.t, m)
	}
	if m.MessageType() == openflow.TypeHello { // os-ken writes no bitmap
		k.orders.count(m)
		return got.XID
	}
	k.peer.do("write", got.XID, m)
	if wrote := k.peer.next("wrote"); wrote.Hex != got.Hex {
		k.t.Errorf("%s\nours     %s\nos-ken's %s", m, got.Hex, wrote.Hex)
	}
	k.orders.count(m)
	return got.XID
}

// says has the switch send a message, which must be to os-ken what it was meant to be, and decoded by us likewise.
func (k *oskenTalk) says(xid uint32, m openflow.Message) {
	k.t.Helper()
	k.peer.do("send", xid, m)
	sent := k.peer.next("sent")
	sent.same(k.t, m)
	equal(k.t, "decoded", m, sent.decode(k.t))
	k.answer.count(m)
}

func (k *oskenTalk) exchange(e exchange) {
	k.t.Helper()
	switch ask := e.ask.(type) {
	case nil:
		k.unasked(e.give[0])
	case *openflow.RoleRequest:
		done := make(chan error, 1)
		go func() { done <- k.conn.SetRole(k.t.Context(), ask.Role, ask.GenerationID) }()
		k.says(k.ordered(ask), e.give[0])
		if err := <-done; err != nil {
			k.t.Fatalf("%s: %v", ask, err)
		}
	default:
		if len(e.give) > 0 {
			k.asked(ask, e.give)
			return
		}
		if _, err := k.conn.Send(ask); err != nil {
			k.t.Fatalf("%s: %v", ask, err)
		}
		k.ordered(ask)
	}
}

// asked is a question and its answer, which whoever asked is given.
func (k *oskenTalk) asked(ask openflow.Message, give []openflow.Message) {
	k.t.Helper()
	call, err := k.conn.Ask(ask)
	if err != nil {
		k.t.Fatalf("%s: %v", ask, err)
	}
	if xid := k.ordered(ask); xid != call.XID() {
		k.t.Errorf("%s came with transaction id %d, want %d", ask, xid, call.XID())
	}
	for _, m := range give {
		k.says(call.XID(), m)
	}
	got, err := call.Wait(k.t.Context())
	if refusal, ok := give[0].(*openflow.ErrorMessage); ok {
		var refused *RemoteError
		if !errors.As(err, &refused) {
			k.t.Fatalf("%s: %v, want an error of the switch", ask, err)
		}
		equal(k.t, "refused", refusal, refused.Message)
		return
	}
	if err != nil {
		k.t.Fatalf("%s: %v", ask, err)
	}
	if len(call.parts) == 0 {
		equal(k.t, "answered", give[0], got)
		return
	}
	if len(call.parts) != len(give) {
		k.t.Fatalf("%s: %d parts, want %d", ask, len(call.parts), len(give))
	}
	for i := range give {
		equal(k.t, "answered", give[i], call.parts[i])
	}
}

// unasked returns the message that the handler receives or, for an echo request, the connection's answer.
func (k *oskenTalk) unasked(m openflow.Message) {
	k.t.Helper()
	k.says(0, m)
	switch m := m.(type) {
	case *openflow.EchoRequest:
		k.ordered(&openflow.EchoReply{Data: m.Data})
	case *openflow.EchoReply: // counted as strange
	default:
		select {
		case got := <-k.handler.messages:
			equal(k.t, "reported", m, got)
		case <-time.After(oskenPatience):
			k.t.Errorf("the handler gets no report of %s", m)
		}
	}
}
