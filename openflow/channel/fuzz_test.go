package channel

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"weir/openflow"
	"weir/openflow/oftest"
)

// FuzzConn lets a peer send any bytes, in any pieces, at once or after a handshake, to a controller that asks
// questions, has a role and answers packet-ins. For any input nothing panics, memory keeps to the limits, and once
// the peer has gone every goroutine ends: else the bubble fails.
func FuzzConn(f *testing.F) {
	reply := encode(f, 3, part(true, 2))
	f.Add([]byte{}, uint8(1), false)
	f.Add(hello(4, 1<<4), uint8(3), false)
	f.Add(hello(6, 1<<6), uint8(200), false)
	f.Add(encode(f, 0, samplePacketIn()), uint8(7), true)
	f.Add(append(encode(f, 1, &openflow.EchoRequest{Data: make([]byte, 300)}), reply...), uint8(100), true)
	for xid := range uint32(6) { // answers to what is asked below, whichever id it has
		f.Add(encode(f, xid, &openflow.RoleReply{Role: openflow.RoleMaster, GenerationID: 5}), uint8(16), true)
		f.Add(encode(f, xid, &openflow.BarrierReply{}), uint8(8), true)
		f.Add(encode(f, xid, part(false, 1)), uint8(50), true)
		f.Add(encode(f, xid, &openflow.ErrorMessage{ErrorType: 11}), uint8(5), true)
	}
	for i, b := range oftest.Corpus(1) {
		f.Add(b, uint8(20*i), i%16 > 0) // now and then before the handshake
	}
	f.Add([]byte{4, 30, 0, 24, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}, uint8(24), true)
	f.Fuzz(func(t *testing.T, b []byte, piece uint8, joined bool) {
		if len(b) > 1<<16 {
			return
		}
		synctest.Test(t, func(t *testing.T) { anyBytes(t, b, int(piece)+1, joined) })
	})
}

func anyBytes(t *testing.T, b []byte, piece int, joined bool) {
	limits := Limits{QueueBytes: 16 << 10, QueueMessages: 64, Outstanding: 4, ReplyBytes: 8 << 10, ReplyParts: 4, Messages: 1000}
	runWorld(t, Config{Limits: limits}, func(w *world) {
		w.handler.onPacket = func(c *Conn, _ *openflow.PacketIn) {
			_, _ = c.Send(&openflow.FlowMod{BufferID: openflow.NoBuffer}) // refused or not
		}
		ours, theirs := net.Pipe()
		w.listener.accept <- ours
		peer := &fakeSwitch{t: t, nc: theirs}
		var c *Conn
		if joined {
			peer.greet(1)
			c = <-w.handler.ups
			for range 2 {
				go func() { _, _ = c.Multipart(t.Context(), askPorts) }()
			}
			go func() { _ = c.SetRole(t.Context(), openflow.RoleMaster, 5) }()
			go func() { _ = c.Apply(t.Context(), &openflow.SetAsync{}) }()
		}
		go peer.hangup()
		for len(b) > 0 {
			n, err := theirs.Write(b[:min(piece, len(b))])
			if err != nil {
				break
			}
			b = b[n:]
		}
		synctest.Wait()
		if c != nil {
			checkBounds(t, c, limits)
		}
		time.Sleep(s1)
		_ = theirs.Close()
	})
}

func checkBounds(t *testing.T, c *Conn, l Limits) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.out.buf) + c.out.flight; n > l.QueueBytes {
		t.Errorf("%d bytes queued", n)
	}
	if c.gathered < 0 || c.gathered > l.ReplyBytes {
		t.Errorf("%d bytes gathered", c.gathered)
	}
	if c.asked < 0 || c.asked > l.Outstanding || len(c.calls) > l.Outstanding+10 {
		t.Errorf("%d questions, %d calls", c.asked, len(c.calls))
	}
}
