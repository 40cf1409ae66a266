package channel

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"weir/openflow"
)

// TestSlowReader: a peer that never reads costs a full queue and WriteTimeout, and then nothing.
func TestSlowReader(t *testing.T) {
	limits := Limits{QueueBytes: 64 << 10, QueueMessages: 1000}
	for name, c := range map[string]struct {
		data     int // bytes of each message
		messages int // that fit
	}{
		"by bytes":    {992, 65}, // a thousand bytes each
		"by messages": {0, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{Limits: limits}, func(w *world) {
				f, conn := w.join(1)
				go func() { // it lives, it just does not read
					for b := encode(t, 0, &openflow.PortStatus{}); conn.Err() == nil; {
						_, _ = f.nc.Write(b) // until the other end is closed
						select {
						case <-conn.Done():
						case <-time.After(s1):
						}
					}
				}()
				m := &openflow.EchoReply{Data: make([]byte, c.data)}
				begun := time.Now()
				n := 0
				for ; ; n++ {
					if _, err := conn.Send(m); err != nil {
						if !errors.Is(err, ErrQueueFull) {
							t.Error(err)
						}
						break
					}
					if n == 0 {
						synctest.Wait() // the writer is stuck with the first
					}
				}
				if n != c.messages {
					t.Errorf("%d messages fit, want %d", n, c.messages)
				}
				st := conn.Stats()
				if st.QueuedBytes > limits.QueueBytes || st.QueuedMessages > limits.QueueMessages || st.Refused != 1 {
					t.Errorf("%d bytes, %d messages queued, %d refused", st.QueuedBytes, st.QueuedMessages, st.Refused)
				}
				w.ended(conn, CauseSlowReader)
				if took := time.Since(begun); took < 5*s1 || took > 7*s1 {
					t.Errorf("given up after %v, want 5 s to 6.25 s", took)
				}
				conn.mu.Lock()
				if conn.out.buf != nil || conn.out.spare != nil {
					t.Error("the queue is kept")
				}
				conn.mu.Unlock()
			})
		})
	}
}

// TestSlowReader_ButReads: one who reads slowly, yet reads, keeps the connection and gets everything.
func TestSlowReader_ButReads(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f, c := w.join(1)
		const n = 64 // of 32 KiB: 2 MiB; a piece of 64 KiB takes 2 s
		for range n {
			if _, err := c.Send(&openflow.EchoReply{Data: make([]byte, 32<<10-8)}); err != nil {
				t.Fatal(err)
			}
		}
		for got := 0; got < n; {
			h, _, err := f.read()
			if err != nil {
				t.Fatal(err)
			}
			switch h.Type {
			case openflow.TypeEchoReply:
				got++
				time.Sleep(s1)
			case openflow.TypeEchoRequest:
				f.send(h.XID, &openflow.EchoReply{})
			}
			f.send(0, &openflow.PortStatus{}) // a sign of life: the echo request is behind the 2 MiB
		}
		if c.Err() != nil {
			t.Error(c.Err())
		}
	})
}

// TestQueue_Order: what is sent by many arrives whole, each sender's in its order.
func TestQueue_Order(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		f, c := w.join(1)
		const senders, each = 8, 500
		for s := range senders {
			go func() {
				for i := range each {
					if _, err := c.Send(&openflow.EchoReply{Data: []byte{byte(s), byte(i >> 8), byte(i)}}); err != nil {
						t.Error(err)
					}
				}
			}()
		}
		next := make([]int, senders)
		for range senders * each {
			_, m := f.expect(openflow.TypeEchoReply)
			d := m.(*openflow.EchoReply).Data
			if i := int(d[1])<<8 | int(d[2]); i != next[d[0]] {
				t.Fatalf("sender %d: %d came, want %d", d[0], i, next[d[0]])
			}
			next[d[0]]++
		}
	})
}

// TestFlood_PacketIns: above the rate packet-ins are dropped and counted, and everything else goes on.
func TestFlood_PacketIns(t *testing.T) {
	inWorld(t, Config{Limits: Limits{PacketIns: 400}}, func(w *world) {
		f, c := w.join(1)
		go f.hangup()
		for range 1000 {
			f.send(0, packetIn(60))
		}
		f.send(0, &openflow.PortStatus{})
		synctest.Wait()
		if n, st := w.handler.packetCount(), c.Stats(); n != 100 || st.PacketInsDropped != 900 || len(w.handler.messages) != 1 || st.Pauses != 0 {
			t.Errorf("%d handed on, %d dropped, %d others, %d pauses", n, st.PacketInsDropped, len(w.handler.messages), st.Pauses)
		}
		time.Sleep(s1 / 8)
		for range 1000 {
			f.send(0, packetIn(60))
		}
		synctest.Wait()
		if n := w.handler.packetCount(); n != 150 || c.Err() != nil { // 400 a second, for an eighth
			t.Errorf("%d handed on, want 150; %v", n, c.Err())
		}
	})
}

func TestFlood_PacketInBytes(t *testing.T) {
	inWorld(t, Config{Limits: Limits{PacketInBytes: readMin}}, func(w *world) {
		f, c := w.join(1)
		go f.hangup()
		for range 20 {
			f.send(0, packetIn(8<<10))
		}
		synctest.Wait()
		if n, st := w.handler.packetCount(), c.Stats(); n != 7 || st.PacketInsDropped != 13 { // 64 KiB at once, 8 KiB and a head each
			t.Errorf("%d handed on, %d dropped", n, st.PacketInsDropped)
		}
	})
}

// TestFlood_Messages: other messages are not dropped: the switch is read from no faster than the rate.
func TestFlood_Messages(t *testing.T) {
	for name, m := range map[string]openflow.Message{
		"echo requests":    &openflow.EchoRequest{},
		"port status":      &openflow.PortStatus{},
		"errors":           &openflow.ErrorMessage{ErrorType: 1},
		"strange answers":  &openflow.BarrierReply{},
		"strange parts":    part(true, 1),
		"what nobody asks": &openflow.FeaturesRequest{},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{Limits: Limits{Messages: 100}}, func(w *world) {
				f, c := w.join(1)
				go f.hangup()
				begun := time.Now()
				for range 400 {
					f.send(0xffff, m)
				}
				synctest.Wait()
				if took := time.Since(begun); took < 2900*ms || took > 3*s1 {
					t.Errorf("400 messages were taken within %v, want 3 s", took)
				}
				if st := c.Stats(); st.In[m.MessageType()] < 399 || c.Err() != nil {
					t.Errorf("%d taken: %v", st.In[m.MessageType()], c.Err())
				}
			})
		})
	}
}

// TestFlood_Bytes: in all no more bytes are read than the rate.
func TestFlood_Bytes(t *testing.T) {
	inWorld(t, Config{Limits: Limits{ReadBytes: readMin, PacketIns: 4}}, func(w *world) {
		f, c := w.join(1)
		go f.hangup()
		begun := time.Now()
		b := encode(t, 0, packetIn(1000-40))
		n := 5 * readMin / len(b)
		for range n {
			f.write(b)
		}
		if took := time.Since(begun); took < 4500*ms || took > 5*s1 {
			t.Errorf("%d bytes were taken within %v, want 4.75 s", n*len(b), took)
		}
		time.Sleep(s1)
		synctest.Wait()
		if st := c.Stats(); c.Err() != nil || int(st.PacketInsDropped)+w.handler.packetCount() != n {
			t.Errorf("%d dropped, %d handed on of %d: %v", st.PacketInsDropped, w.handler.packetCount(), n, c.Err())
		}
	})
}

// TestAnswersAreFree: what was asked for does not count against the rate of unasked messages.
func TestAnswersAreFree(t *testing.T) {
	inWorld(t, Config{Limits: Limits{Messages: 1}}, func(w *world) {
		f, c := w.join(1)
		f.live(nil)
		begun := time.Now()
		for range 100 {
			if err := c.Barrier(w.t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("100 barriers took %v of the bubble's clock", took)
		}
	})
}

// TestPacketIn_NoAllocation: from the bytes in the buffer to the handler and the flow-mod in the queue.
func TestPacketIn_NoAllocation(t *testing.T) {
	s, err := NewServer(Config{Handler: learning{}})
	if err != nil {
		t.Fatal(err)
	}
	c := s.newConn(nowhere{}, nil)
	c.master = true
	s.handler.Up(c)
	b := encode(t, 0, samplePacketIn())
	var batch []byte
	for range 32 {
		batch = append(batch, b...)
	}
	c.in.resize(bufferMax)
	allocs := testing.AllocsPerRun(100, func() {
		c.in.r, c.in.w = 0, copy(c.in.buf, batch)
		if why := c.batch(); why != nil {
			t.Fatal(why)
		}
		c.out.buf, c.out.messages = c.out.buf[:0], 0
	})
	if allocs != 0 {
		t.Errorf("%v allocations for 32 packet-ins", allocs)
	}
	if n := c.out.types[openflow.TypeFlowMod]; n != 32*101 {
		t.Errorf("%d flow-mods, want %d", n, 32*101)
	}
	if n := c.State.(*law).failed; n != 0 {
		t.Errorf("%d packet-ins without a flow-mod", n)
	}
}
