package channel

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/openflow"
)

func TestEcho_BothWays(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f, c := w.join(1)
		f.send(77, &openflow.EchoRequest{Data: []byte("are you there")})
		h, m := f.expect(openflow.TypeEchoReply)
		if h.XID != 77 || !bytes.Equal(m.(*openflow.EchoReply).Data, []byte("are you there")) {
			t.Errorf("answered %v with id %d", m, h.XID)
		}
		for i, took := range []time.Duration{30 * ms, 10 * ms, 50 * ms} {
			h, _ := f.expect(openflow.TypeEchoRequest)
			if at := time.Since(c.since); at != time.Duration(i+1)*2*s1 {
				t.Errorf("echo request %d after %v", i, at)
			}
			time.Sleep(took)
			f.send(h.XID, &openflow.EchoReply{})
		}
		synctest.Wait()
		want := RTT{Last: 50 * ms, Least: 10 * ms, Count: 3}
		want.Smooth = 30*ms + (10*ms-30*ms)/8
		want.Smooth += (50*ms - want.Smooth) / 8
		if got := c.Stats().RTT; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// TestEcho_Silent: a peer that says nothing is given up EchoTimeout after the echo request, and not before.
func TestEcho_Silent(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f, c := w.join(1)
		go f.hangup()
		w.ended(c, CauseSilent)
		if lived := time.Since(c.since); lived != 6*s1 {
			t.Errorf("it lived %v, want 2 s + 4 s", lived)
		}
	})
}

// TestEcho_OtherWords: whoever says anything at all lives, answers to echo requests or not.
func TestEcho_OtherWords(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f, c := w.join(1)
		go f.hangup()
		for range 20 {
			time.Sleep(3 * s1)
			f.send(0xffff, &openflow.EchoReply{}) // not an id that was asked with
		}
		synctest.Wait()
		if c.Err() != nil {
			t.Fatal(c.Err())
		}
		if got := c.Stats(); got.RTT.Count != 0 || got.Strange != 20 {
			t.Errorf("%+v", got)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if waiting := len(c.calls); waiting > 6 { // RequestTimeout / EchoInterval, and one
			t.Errorf("%d echo requests wait for an answer", waiting)
		}
	})
}

// TestEcho_BusyHandler: a handler that takes longer than EchoTimeout is not the switch's fault.
func TestEcho_BusyHandler(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.handler.onPacket = func(*Conn, *openflow.PacketIn) { time.Sleep(20 * s1) }
		f, c := w.join(1)
		h, _ := f.expect(openflow.TypeEchoRequest)
		f.live(nil)
		f.send(0, packetIn(1))
		f.send(h.XID, &openflow.EchoReply{}) // waits to be read, meanwhile
		time.Sleep(60 * s1)
		synctest.Wait()
		if c.Err() != nil {
			t.Error(c.Err())
		}
	})
}

// TestMessage_SlowLoris: a message that goes on and on ends the connection, though bytes come all the time.
func TestMessage_SlowLoris(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f, c := w.join(1)
		go f.hangup()
		f.send(0, packetIn(1))
		synctest.Wait()
		begun := time.Now()
		for b := encode(t, 0, packetIn(1000)); ; time.Sleep(100 * ms) {
			if _, err := f.nc.Write(b[:1]); err != nil {
				break
			}
			b = b[1:]
		}
		w.ended(c, CauseSlowMessage)
		if took := time.Since(begun); took < 5*s1 || took > 5*s1+100*ms {
			t.Errorf("given up after %v, want 5 s", took)
		}
		if n := w.handler.packetCount(); n != 1 {
			t.Errorf("%d packet-ins, want 1", n)
		}
	})
}

// TestMessage_SlowButWell: messages that each come in time may come in pieces, without end.
func TestMessage_SlowButWell(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f, c := w.join(1)
		go f.hangup()
		b := encode(t, 0, packetIn(100))
		for range 10 {
			for _, piece := range [][]byte{b[:3], b[3:20], b[20 : len(b)-1]} {
				f.write(piece)
				time.Sleep(s1)
			}
			f.write(append(b[len(b)-1:len(b):len(b)], b[:5]...)) // the next one's begin comes with the end
			time.Sleep(s1)
			f.write(b[5:])
		}
		synctest.Wait()
		if n := w.handler.packetCount(); c.Err() != nil || n != 20 {
			t.Errorf("%d packet-ins, want 20; %v", n, c.Err())
		}
	})
}

// TestMalformed: where the next message begins is not known after these, so nothing more is read.
func TestMalformed(t *testing.T) {
	for name, b := range map[string][]byte{
		"length below 8":  {4, 10, 0, 3, 0, 0, 0, 0},
		"another version": {5, 10, 0, 8, 0, 0, 0, 0},
		"too long":        {4, 10, 0x10, 0, 0, 0, 0, 0}, // 4096, of which none came
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{Limits: Limits{MessageBytes: 4095}}, func(w *world) {
				f, c := w.join(1)
				f.write(b)
				w.ended(c, CauseMalformed)
				f.hangup()
			})
		})
	}
}

// TestUndecodable: a message whose bounds are known and whose content is not is dropped, counted and logged.
func TestUndecodable(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f, c := w.join(1)
		go f.hangup()
		for _, b := range [][]byte{
			{4, 10, 0, 12, 0, 0, 0, 0, 1, 2, 3, 4},        // PACKET_IN
			{4, 12, 0, 9, 0, 0, 0, 0, 1},                  // PORT_STATUS
			{4, 1, 0, 9, 0, 0, 0, 0, 1},                   // ERROR
			{4, 30, 0, 9, 0, 0, 0, 0, 1},                  // ROLE_STATUS
			{4, 200, 0, 8, 0, 0, 0, 0},                    // no type at all
			{4, 14, 0, 8, 0, 0, 0, 0}, hello(4), hello(1), // what a switch does not send, or not twice
			encode(t, 1, &openflow.FeaturesRequest{}),       // a question
			encode(t, 0, packetIn(5)),                       // all is well afterwards
			append([]byte{4, 4, 0, 9, 0, 0, 0, 0}, byte(1)), // EXPERIMENTER
		} {
			f.write(b)
		}
		synctest.Wait()
		got := c.Stats()
		if got.Undecodable != 5 || got.Unknown != 5 || w.handler.packetCount() != 1 || c.Err() != nil {
			t.Errorf("%d undecodable, %d unknown, %d packet-ins, %v", got.Undecodable, got.Unknown, w.handler.packetCount(), c.Err())
		}
		has(t, w.log.String(), "PACKET_IN", "PORT_STATUS")
	})
}

// TestLog_Bounded: a peer cannot fill the log.
func TestLog_Bounded(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f, _ := w.join(1)
		go f.hangup()
		for range 1000 {
			f.send(5, &openflow.BarrierReply{})
		}
		time.Sleep(s1)
		f.send(5, &openflow.BarrierReply{})
		synctest.Wait()
		if lines := bytes.Count([]byte(w.log.String()), []byte("\n")); lines != 11 { // 10 at once and one a second later
			t.Errorf("%d lines, want 11", lines)
		}
		has(t, w.log.String(), "lines_left_out=991") // of 1002, with the one about the switch
	})
}

// TestLog_ManyConnections: many short connections cannot fill the log either, and the lines that are left out are counted.
func TestLog_ManyConnections(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		const connections = 3000 // with two lines each
		for range connections {
			f, c := w.join(1)
			_ = f.nc.Close()
			w.ended(c, CausePeerClosed)
		}
		if n := strings.Count(w.log.String(), "\n"); n != 2000 {
			t.Errorf("%d lines, want 2000", n)
		}
		time.Sleep(s1)
		w.join(1)
		has(t, w.log.String(), "lines_left_out=4000")
	})
}

// TestLog_LongText: a long text of a peer is clipped.
func TestLog_LongText(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		_, c := w.join(1)
		before := len(w.log.String())
		long := strings.Repeat("x", 60000)
		c.log.say(levelWarn, "a message", "error", errors.New(long), "text", long)
		if n := len(w.log.String()) - before; n < 2*argBytes || n > 2*argBytes+200 {
			t.Errorf("a line of %d bytes", n)
		}
	})
}

func packetIn(data int) *openflow.PacketIn {
	return &openflow.PacketIn{BufferID: openflow.NoBuffer, TotalLen: uint16(data), Data: make([]byte, data)}
}
