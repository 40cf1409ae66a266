package channel

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"weir/openflow"
)

// socketBytes is room for more than a segment of the loopback and less than what the tests send.
const socketBytes = 128 << 10

// narrowSwitch is a switch over TCP whose kernel takes little at once, so that writes end in the middle of messages.
func narrowSwitch(t *testing.T, address string) *fakeSwitch {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if err := nc.(*net.TCPConn).SetReadBuffer(socketBytes); err != nil {
		t.Fatal(err)
	}
	f := &fakeSwitch{t: t, nc: nc}
	f.greet(1)
	return f
}

// TestPush_Order: the reading goroutine writes some messages itself. It leaves others to the writing goroutine because the
// kernel's buffer is full, and other goroutines send as well. All messages arrive whole, and in order for each sender.
func TestPush_Order(t *testing.T) {
	const senders, each = 4, 400
	message := func(sender, i int) openflow.Message { // of odd lengths, 3000 bytes and more
		return &openflow.EchoReply{Data: append([]byte{byte(sender), byte(i >> 8), byte(i)}, make([]byte, 3000+i%97)...)}
	}
	_, address, _, h, stop := loopback(t, Config{Limits: Limits{SocketBytes: socketBytes, QueueBytes: 16 << 20, EchoInterval: time.Minute}})
	defer stop()
	n := 0
	h.onPacket = func(c *Conn, _ *openflow.PacketIn) { // sender 0 is the reading goroutine
		if _, err := c.Send(message(0, n)); err != nil {
			t.Error(err)
		}
		n++
	}
	f := narrowSwitch(t, address)
	c := <-h.ups
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { f.write(bytes.Repeat(encode(t, 0, packetIn(1)), each)) })
	for s := 1; s < senders; s++ {
		all.Go(func() {
			for i := range each {
				if _, err := c.Send(message(s, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	next := make([]int, senders)
	for range senders * each {
		_, m := f.expect(openflow.TypeEchoReply)
		d := m.(*openflow.EchoReply).Data
		if i := int(d[1])<<8 | int(d[2]); i != next[d[0]] || len(d) != 3003+i%97 {
			t.Fatalf("sender %d: %d of %d bytes came, want %d", d[0], i, len(d), next[d[0]])
		}
		next[d[0]]++
	}
}

// TestPush_SlowReader: a switch that talks and does not read costs a full queue, is answered with nothing more, and is
// cut off; its reading goroutine is never stuck in a write.
func TestPush_SlowReader(t *testing.T) {
	limits := Limits{SocketBytes: socketBytes, QueueBytes: 256 << 10, WriteTimeout: 100 * time.Millisecond, EchoInterval: time.Minute}
	_, address, _, h, stop := loopback(t, Config{Limits: limits})
	defer stop()
	h.onPacket = func(c *Conn, _ *openflow.PacketIn) {
		_, _ = c.Send(&openflow.EchoReply{Data: make([]byte, 10_000)}) // refused in the end
		if st := c.Stats(); st.QueuedBytes > limits.QueueBytes {
			t.Errorf("%d bytes queued", st.QueuedBytes)
		}
	}
	f := narrowSwitch(t, address)
	c := <-h.ups
	go func() {
		for b := bytes.Repeat(encode(t, 0, packetIn(1)), 100); ; {
			if _, err := f.nc.Write(b); err != nil {
				return
			}
		}
	}()
	<-c.gone
	if st := c.Stats(); st.Refused == 0 || st.In[openflow.TypePacketIn] < st.Refused {
		t.Errorf("%d messages refused of %d packet-ins", st.Refused, st.In[openflow.TypePacketIn])
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.causes[CauseSlowReader] != 1 {
		t.Errorf("ended by %v, want a slow reader", c.Err())
	}
}

// TestPush_Direct: answers to a batch leave without the writing goroutine, in one buffer; the one that the kernel has
// no room for goes on from the very byte.
func TestPush_Direct(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	ours, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(Config{})
	if err != nil {
		t.Fatal(err)
	}
	c := s.newConn(ours, nil) // without a writing goroutine
	sent := 0
	send := func() {
		c.cork()
		if _, err := c.Send(&openflow.EchoReply{Data: bytes.Repeat([]byte{byte(sent)}, 999)}); err != nil {
			t.Fatal(err)
		}
		sent++
		c.uncork()
	}
	for range 10 {
		send()
		if len(c.out.buf) > 0 || c.out.turn != nobody || c.out.spare != nil || c.Stats().QueuedBytes != 0 || c.Stats().QueuedMessages != 0 {
			t.Fatalf("after %d: %d bytes queued, turn %d, spare %t: %+v", sent, len(c.out.buf), c.out.turn, c.out.spare != nil, c.Stats())
		}
	}
	for c.out.turn == nobody { // until the socket is full
		send()
	}
	left := len(c.out.rest)
	send()
	if st := c.Stats(); left == 0 || len(c.out.rest) != left || st.QueuedBytes != left+1007 || st.QueuedMessages != 2 {
		t.Fatalf("%d bytes left, then %d: %+v", left, len(c.out.rest), st)
	}
	go c.write()
	defer c.Close()
	for r, i := bufio.NewReader(theirs), 0; i < sent; i++ {
		b := make([]byte, 1007)
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatal(err)
		}
		if _, m, err := openflow.Decode(b); err != nil || !bytes.Equal(m.(*openflow.EchoReply).Data, bytes.Repeat([]byte{byte(i)}, 999)) {
			t.Fatalf("message %d of %d: %v", i, sent, err)
		}
	}
}

// TestBucket: never more than the rate and what may come at once.
func TestBucket(t *testing.T) {
	now := time.Now()
	b := newBucket(now, 1000, 50)
	taken := 0
	for i := range 3000 { // asked for 3000 a second, for a second
		if b.take(now.Add(time.Duration(i)*time.Second/3000), 1) {
			taken++
		}
	}
	if taken < 1048 || taken > 1050 {
		t.Errorf("%d taken, want 1050", taken)
	}
	now = now.Add(time.Hour)
	if w := b.owe(now, 50); w != 0 {
		t.Errorf("wait %v after an hour", w)
	}
	if w := b.owe(now, 100); w != 100*time.Millisecond {
		t.Errorf("wait %v, want 100 ms", w)
	}
	if b.take(now.Add(100*time.Millisecond), 1) || !b.take(now.Add(101*time.Millisecond+time.Microsecond), 1) {
		t.Error("what is owed is not paid first")
	}
	if b.take(now.Add(-time.Hour), 1) { // a clock that goes back gives nothing
		t.Error("tokens from the past")
	}
}
