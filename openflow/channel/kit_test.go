package channel

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/testlog"
	"weir/openflow"
)

// pipes is a listener whose connections are pipes: nothing of the machine's network or clock is in them.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{accept: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case nc := <-p.accept:
		return nc, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

// recorder is a handler that records all calls. It copies every packet-in, whose bytes are borrowed.
type recorder struct {
	mu       sync.Mutex
	events   []string // "up 1", "down 1", by datapath id
	ups      chan *Conn
	messages []openflow.Message
	packets  [][]byte
	causes   map[Cause]int
	onPacket func(*Conn, *openflow.PacketIn)
}

func newRecorder() *recorder {
	return &recorder{ups: make(chan *Conn, 1000), causes: make(map[Cause]int)}
}

func (r *recorder) Up(c *Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, "up "+hexID(c.DatapathID()))
	r.ups <- c
}

func (r *recorder) PacketIn(c *Conn, in *openflow.PacketIn) {
	r.mu.Lock()
	r.packets = append(r.packets, slices.Clone(in.Data))
	r.mu.Unlock()
	if r.onPacket != nil {
		r.onPacket(c, in)
	}
}

func (r *recorder) Message(_ *Conn, _ openflow.Header, m openflow.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, m)
}

func (r *recorder) Down(c *Conn, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, "down "+hexID(c.DatapathID()))
	if why := new(CloseError); errors.As(err, &why) {
		r.causes[why.Cause]++
	}
}

func (r *recorder) packetCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.packets)
}

// world is a server on pipes, in a bubble with a clock of its own.
type world struct {
	t        *testing.T
	server   *Server
	handler  *recorder
	listener *pipes
	log      *testlog.Log
}

// inWorld runs a test in a bubble. When it returns, every goroutine of the server has ended, or the bubble fails.
func inWorld(t *testing.T, config Config, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { runWorld(t, config, test) })
}

func runWorld(t *testing.T, config Config, test func(w *world)) {
	w := &world{t: t, handler: newRecorder(), listener: newPipes(), log: new(testlog.Log)}
	config.Handler, config.Log = w.handler, slog.New(slog.NewTextHandler(w.log, nil))
	s, err := NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	w.server = s
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, w.listener) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if st := s.Stats(); st.Connections != 0 || st.HalfOpen != 0 || st.Switches != 0 {
			t.Errorf("left over: %+v", st)
		}
	}()
	test(w)
}

// connect returns the switch's end of a new connection.
func (w *world) connect() *fakeSwitch {
	ours, theirs := net.Pipe()
	w.listener.accept <- ours
	w.t.Cleanup(func() { _ = theirs.Close() })
	return &fakeSwitch{t: w.t, nc: theirs}
}

// join connects a switch, hello and features with it.
func (w *world) join(id uint64) (*fakeSwitch, *Conn) {
	w.t.Helper()
	f := w.connect()
	f.greet(id)
	return f, <-w.handler.ups
}

// ended waits until the handler's Down was called, and checks the cause.
func (w *world) ended(c *Conn, want Cause) {
	w.t.Helper()
	<-c.gone
	var why *CloseError
	if !errors.As(c.Err(), &why) || why.Cause != want {
		w.t.Errorf("ended by %v, want %v", c.Err(), want)
	}
}

// fakeSwitch is the other end, byte by byte.
type fakeSwitch struct {
	t  *testing.T
	nc net.Conn
}

func encode(t testing.TB, xid uint32, m openflow.Message) []byte {
	t.Helper()
	b, err := openflow.Append(nil, xid, m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (f *fakeSwitch) send(xid uint32, m openflow.Message) {
	f.t.Helper()
	f.write(encode(f.t, xid, m))
}

func (f *fakeSwitch) write(b []byte) {
	f.t.Helper()
	if _, err := f.nc.Write(b); err != nil {
		f.t.Errorf("the switch writes: %v", err)
	}
}

func (f *fakeSwitch) read() (openflow.Header, openflow.Message, error) {
	b := make([]byte, openflow.HeaderLen, openflow.MaxLen)
	if _, err := io.ReadFull(f.nc, b); err != nil {
		return openflow.Header{}, nil, err
	}
	h, err := openflow.ParseHeader(b)
	if err != nil {
		return h, nil, err
	}
	b = b[:h.Length]
	if _, err := io.ReadFull(f.nc, b[openflow.HeaderLen:]); err != nil {
		return h, nil, err
	}
	return openflow.Decode(b)
}

// expect reads the next message that is neither an echo nor a question for the role.
func (f *fakeSwitch) expect(want openflow.Type) (openflow.Header, openflow.Message) {
	f.t.Helper()
	for {
		h, m, err := f.read()
		if err != nil {
			f.t.Fatalf("the switch waits for %s: %v", want, err)
		}
		if h.Type != want && h.Type == openflow.TypeEchoRequest {
			f.send(h.XID, &openflow.EchoReply{})
			continue
		}
		if h.Type != want {
			f.t.Fatalf("the switch got %s, want %s", h.Type, want)
		}
		return h, m
	}
}

// hangup waits until the controller has ended the connection, and gives what came before.
func (f *fakeSwitch) hangup() []openflow.Message {
	var all []openflow.Message
	for {
		_, m, err := f.read()
		if err != nil {
			return all
		}
		all = append(all, m)
	}
}

func (f *fakeSwitch) greet(id uint64) {
	f.t.Helper()
	f.expect(openflow.TypeHello)
	f.send(0, &openflow.Hello{Versions: []uint8{openflow.Version13}})
	h, _ := f.expect(openflow.TypeFeaturesRequest)
	f.send(h.XID, &openflow.FeaturesReply{DatapathID: id, Tables: 254})
}

// live answers everything a real switch answers, in the background, until the connection ends; what else came it hands
// to seen.
func (f *fakeSwitch) live(seen func(openflow.Header, openflow.Message)) {
	go func() {
		for {
			h, m, err := f.read()
			if err != nil {
				return
			}
			if seen != nil {
				seen(h, m)
			}
			var answer openflow.Message
			switch m := m.(type) {
			case *openflow.EchoRequest:
				answer = &openflow.EchoReply{Data: m.Data}
			case *openflow.BarrierRequest:
				answer = &openflow.BarrierReply{}
			case *openflow.RoleRequest:
				answer = &openflow.RoleReply{Role: m.Role, GenerationID: m.GenerationID}
			}
			if answer == nil {
				continue
			}
			if b, err := openflow.Append(nil, h.XID, answer); err == nil {
				_, _ = f.nc.Write(b) // the controller may have gone
			}
		}
	}()
}

func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is not in:\n%s", p, text)
		}
	}
}

const (
	ms = time.Millisecond
	s1 = time.Second
)
