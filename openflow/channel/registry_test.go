package channel

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/openflow"
)

// TestDuplicate_Refused: whoever claims the id of a switch that answers is sent away, and the switch does not notice.
func TestDuplicate_Refused(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f, c := w.join(1)
		f.live(nil)
		thief := w.connect()
		thief.greet(1)
		thief.hangup()
		synctest.Wait()
		st := w.server.Stats()
		if c.Err() != nil || w.server.Conn(1) != c || st.Ended[CauseDuplicate] != 1 || st.Connections != 1 {
			t.Errorf("%v, %+v", c.Err(), st)
		}
		if err := c.Barrier(w.t.Context()); err != nil {
			t.Error(err)
		}
		has(t, w.log.String(), "is connected from pipe and answers")
	})
}

// TestDuplicate_Replaced: a switch that comes back takes the place of its old connection, which does not answer any
// more. The handler sees the old one go first.
func TestDuplicate_Replaced(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		old, c := w.join(1)
		go old.hangup() // reads, and says nothing
		begun := time.Now()
		_, next := w.join(1)
		if took := time.Since(begun); took != s1 {
			t.Errorf("replaced after %v, want ProbeTimeout", took)
		}
		w.ended(c, CauseReplaced)
		if w.server.Conn(1) != next {
			t.Error("the new connection is not the switch's")
		}
		w.handler.mu.Lock()
		defer w.handler.mu.Unlock()
		if got := strings.Join(w.handler.events, ", "); got != "up 0000000000000001, down 0000000000000001, up 0000000000000001" {
			t.Error(got)
		}
	})
}

// TestDuplicate_BusyHandler: that nobody has read the answer yet is not the switch's fault.
func TestDuplicate_BusyHandler(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.handler.onPacket = func(*Conn, *openflow.PacketIn) { time.Sleep(5 * s1) }
		f, c := w.join(1)
		f.live(nil)
		f.send(0, packetIn(60))
		thief := w.connect()
		thief.greet(1)
		thief.hangup()
		time.Sleep(10 * s1)
		if c.Err() != nil || w.server.Conn(1) != c {
			t.Error(c.Err())
		}
	})
}

// slowly answers echo requests after a delay, until the connection ends.
func (f *fakeSwitch) slowly(delay time.Duration) {
	go func() {
		for {
			h, m, err := f.read()
			if err != nil {
				return
			}
			if _, is := m.(*openflow.EchoRequest); !is {
				continue
			}
			time.Sleep(delay)
			if b, err := openflow.Append(nil, h.XID, &openflow.EchoReply{}); err == nil {
				_, _ = f.nc.Write(b) // the controller may have gone
			}
		}
	}()
}

// TestDuplicate_LateNewcomer: the handshake of a second connection ends at its timeout, while the honest switch's answer is on its way. The
// honest switch stays.
func TestDuplicate_LateNewcomer(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f, c := w.join(1)
		f.slowly(100 * ms)
		// The first connection ticks every 2 s. The handshake must not end at a tick, because a busy reader counts as an answer.
		time.Sleep(500 * ms)
		thief := w.connect()
		thief.expect(openflow.TypeHello)
		time.Sleep(10*s1 - 50*ms) // HandshakeTimeout is 10 s
		thief.send(0, &openflow.Hello{Versions: []uint8{openflow.Version13}})
		h, _ := thief.expect(openflow.TypeFeaturesRequest)
		thief.send(h.XID, &openflow.FeaturesReply{DatapathID: 1})
		thief.hangup()
		time.Sleep(s1)
		synctest.Wait()
		if st := w.server.Stats(); c.Err() != nil || w.server.Conn(1) != c || st.Ended[CauseHandshake] != 1 {
			t.Errorf("%v, %+v", c.Err(), st)
		}
	})
}

// TestDuplicate_PushedOut: a second connection is pushed out, or the server ends, while the honest switch's answer is on its way. That
// ends the probe at once, and the honest switch stays.
func TestDuplicate_PushedOut(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f, c := w.join(1)
		f.slowly(500 * ms)
		ours, theirs := net.Pipe()
		defer theirs.Close()
		defer ours.Close()
		newcomer := w.server.newConn(ours, nil)
		newcomer.features.DatapathID = 1
		ctx, cancel := context.WithTimeout(w.t.Context(), 10*s1)
		time.AfterFunc(100*ms, cancel) // as pushOut and the end of Serve do
		begun := time.Now()
		why := w.server.claim(ctx, newcomer)
		if took := time.Since(begun); why == nil || why.Cause != CauseHandshake || took != 100*ms {
			t.Errorf("%v after %v", why, took)
		}
		time.Sleep(s1) // the answer comes
		if c.Err() != nil || w.server.Conn(1) != c {
			t.Error(c.Err())
		}
	})
}

// TestDuplicate_Many: of ten that claim one id at once, one has it at any time.
func TestDuplicate_Many(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		for range 10 {
			f := w.connect()
			go func() {
				f.greet(1)
				f.live(nil)
			}()
		}
		time.Sleep(5 * s1)
		synctest.Wait()
		if st := w.server.Stats(); st.Switches != 1 || st.Connections != 1 || st.Ended[CauseDuplicate] != 9 {
			t.Errorf("%+v", st)
		}
	})
}

func TestAddressOf(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1:6653":               "192.0.2.1",
		"[::ffff:192.0.2.1]:1":         "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:6653":  "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::9]:6653":  "2001:db8:1:2::/64",
		"[fe80::1%lo]:6653":            "fe80::/64",
		"[2001:db8:1:3:ffff::9]:40000": "2001:db8:1:3::/64",
	} {
		a, err := net.ResolveTCPAddr("tcp", in)
		if err != nil {
			t.Fatal(err)
		}
		if got := addressOf(remote{a: a}); got != want {
			t.Errorf("%s counts as %s, want %s", in, got, want)
		}
	}
}

type remote struct {
	net.Conn
	a net.Addr
}

func (r remote) RemoteAddr() net.Addr { return r.a }

func TestLimits_Refused(t *testing.T) {
	for _, l := range []Limits{{Connections: -1}, {MessageBytes: 70000}, {QueueBytes: 1}, {EchoInterval: -1}, {ReadBytes: 1}} {
		if _, err := NewServer(Config{Limits: l}); err == nil {
			t.Errorf("%+v was taken", l)
		}
	}
}

// TestShutdown: when the context ends, every connection does, whatever its state, and Serve waits for it.
func TestShutdown(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.connect().expect(openflow.TypeHello) // half-open
		f, c := w.join(1)
		f.live(nil)
		call, err := c.Ask(&openflow.GetConfigRequest{}) // never answered
		if err != nil {
			t.Fatal(err)
		}
		w.t.Cleanup(func() {
			if _, err := call.Wait(w.t.Context()); err == nil {
				t.Error("a question was answered by nobody")
			}
			w.ended(c, CauseShutdown)
		})
	})
}

// TestFrames returns the same messages however the bytes are cut.
func TestFrames(t *testing.T) {
	var stream []byte
	var want []int
	for i := range 200 {
		n := (i * i * 7) % 9000
		stream = append(stream, encode(t, uint32(i), &openflow.EchoReply{Data: make([]byte, n)})...)
		want = append(want, n+openflow.HeaderLen)
	}
	for step := 1; step < 70000; step = step*3 + 1 {
		f := newFrames(openflow.MaxLen)
		r := &chunks{b: stream, step: step}
		var got []int
		for {
			h, msg, err := f.next()
			if err != nil {
				t.Fatal(err)
			}
			if msg == nil {
				if _, err := f.fill(r); err != nil {
					break
				}
				continue
			}
			if h.XID != uint32(len(got)) || int(h.Length) != len(msg) {
				t.Fatalf("step %d: message %d has id %d", step, len(got), h.XID)
			}
			got = append(got, len(msg))
		}
		if len(got) != len(want) || f.partial() || len(f.buf) > bufferMax {
			t.Errorf("step %d: %d messages, want %d; buffer %d", step, len(got), len(want), len(f.buf))
		}
	}
}

// TestFrames_Memory: a header that announces 64 KiB costs nothing until the bytes come, and idling gives back.
func TestFrames_Memory(t *testing.T) {
	f := newFrames(openflow.MaxLen)
	r := &chunks{b: append([]byte{4, 10, 0xff, 0xff, 0, 0, 0, 0}, make([]byte, openflow.MaxLen-8)...), step: 8}
	if _, err := f.fill(r); err != nil {
		t.Fatal(err)
	}
	if _, msg, err := f.next(); msg != nil || err != nil || len(f.buf) != bufferMin {
		t.Errorf("%d bytes, %v", len(f.buf), err)
	}
	f.shrink()
	if !f.partial() {
		t.Error("an unfinished message was thrown away")
	}
	for _, msg, _ := f.next(); msg == nil; _, msg, _ = f.next() {
		if _, err := f.fill(r); err != nil {
			t.Fatal(err)
		}
		if len(f.buf) > max(bufferMin, 4*f.w) {
			t.Fatalf("%d bytes for %d", len(f.buf), f.w)
		}
	}
	if f.shrink(); len(f.buf) != bufferMin {
		t.Errorf("%d bytes are kept", len(f.buf))
	}
}

// chunks gives its bytes a few at a time.
type chunks struct {
	b    []byte
	step int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.b) == 0 {
		return 0, net.ErrClosed
	}
	n := copy(p, c.b[:min(c.step, len(c.b))])
	c.b = c.b[n:]
	return n, nil
}
