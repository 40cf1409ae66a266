package netstack

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"weir/datapath/testnet"
)

func TestStuck(t *testing.T) {
	const rto = 200 * time.Millisecond
	for name, c := range map[string]struct {
		s    sender
		want bool
	}{
		"all is acknowledged":           {sender{window: 0, rto: rto, idle: time.Hour}, false},
		"a timer runs":                  {sender{unfinished: true, armed: true, window: 1, rto: rto, idle: time.Hour}, false},
		"an answer may be under way":    {sender{unfinished: true, window: 1, rto: rto, idle: rto}, false},
		"no timer runs":                 {sender{unfinished: true, window: 1, rto: rto, idle: rto + 1}, true},
		"a window of 0, though a timer": {sender{unfinished: true, armed: true, rto: rto}, true},
	} {
		if got := c.s.stuck(); got != c.want {
			t.Errorf("%s: stuck %v", name, got)
		}
	}
}

// handPeer is the far end of one connection to a guest; the test makes its segments by hand.
type handPeer struct {
	t        *testing.T
	path     *testnet.Path
	raw      *testnet.Raw
	seq, ack uint32
}

// send sends an empty segment with these flags and options.
func (p *handPeer) send(flags byte, options ...byte) {
	p.t.Helper()
	f := append(syn(p.t, p.path, 2000), options...)
	ip, tcp := f[14:34], f[34:]
	ip[3], ip[10], ip[11] = byte(20+len(tcp)), 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^slowSum(ip))
	binary.BigEndian.PutUint32(tcp[4:], p.seq)
	binary.BigEndian.PutUint32(tcp[8:], p.ack)
	tcp[12], tcp[13], tcp[16], tcp[17] = byte(len(tcp)/4)<<4, flags, 0, 0
	binary.BigEndian.PutUint16(tcp[14:], 60_000)
	pseudo := append(append([]byte{}, ip[12:20]...), 0, unix.IPPROTO_TCP, 0, byte(len(tcp)))
	binary.BigEndian.PutUint16(tcp[16:], ^slowSum(append(pseudo, tcp...)))
	p.raw.Send(p.t, f)
}

// next returns the sequence number and the end of the next segment from the guest that has a flag or data.
func (p *handPeer) next(wanted func(h header.TCP, payload int) bool) (seq, end uint32) {
	p.t.Helper()
	payload := func(f []byte) int {
		return int(binary.BigEndian.Uint16(f[16:])) - 20 - int(header.TCP(f[34:]).DataOffset())
	}
	f := p.raw.Receive(p.t, func(f []byte) bool {
		return len(f) >= 54 && f[23] == unix.IPPROTO_TCP && wanted(header.TCP(f[34:]), payload(f))
	}).Data
	seq = header.TCP(f[34:]).SequenceNumber()
	return seq, seq + uint32(payload(f))
}

// data waits for the segment that ends at, or after, end.
func (p *handPeer) data(end uint32) (seq, last uint32) {
	p.t.Helper()
	return p.next(func(h header.TCP, payload int) bool {
		return payload > 0 && int32(h.SequenceNumber()+uint32(payload)-end) >= 0
	})
}

// After a recovery, netstack loses the last segments and their tail loss probe. The peer has received neither, so
// it sends no answer, and netstack has no timer left.
func TestStuckIsFoundAfterALostProbe(t *testing.T) {
	path := testnet.NewPath(t, testnet.PathOptions{NoIPv6: true})
	settings := Defaults()
	settings.RTOMin = time.Minute // the test needs no retransmission timeout, even on a slow machine
	g := openWith(t, path, settings)
	l, err := g.Listen(80)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := &handPeer{t: t, path: path, raw: testnet.NewRaw(t, path.Uplink), seq: 1000}
	const synFlag, ackFlag = 2, 16
	p.send(synFlag, 2, 4, 1000>>8, 1000&0xff, 4, 2, 1, 1) // an MSS of 1000 B, and SACK
	iss, _ := p.next(func(h header.TCP, _ int) bool { return h.Flags().Contains(header.TCPFlagSyn) })
	p.seq, p.ack = p.seq+1, iss+1
	p.send(ackFlag)
	c, _ := l.Accept()

	const segment = 964 // the MSS without the space for SACK
	const first, second = 8 * segment, 2 * segment
	if _, err := c.Write(make([]byte, first)); err != nil {
		t.Fatal(err)
	}
	end := iss + 1 + first
	p.data(end) // all eight segments are sent
	p.data(end) // and the last of them once more, as a probe
	// The peer has received the last four: four are lost.
	lost := iss + 1 + 4*segment
	sack := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte{1, 1, 5, 10}, lost), end)
	p.send(ackFlag, sack...)
	p.next(func(h header.TCP, payload int) bool { return payload > 0 && h.SequenceNumber()+uint32(payload) == lost }) // again
	if _, err := c.Write(make([]byte, second)); err != nil {
		t.Fatal(err)
	}
	p.data(end + second)
	p.ack = end
	p.send(ackFlag) // all lost segments have arrived; the following ones do not
	p.data(end + second)

	var s sender
	for patience := time.Now().Add(testnet.Patience); time.Now().Before(patience); runtime.Gosched() {
		now := g.stack.Clock().NowMonotonic().Add(time.Hour)
		if s, err = senderOf(c.ep, now); err != nil || s.stuck() {
			break
		}
	}
	if err != nil || !s.stuck() || s.window == 0 {
		t.Errorf("%+v, error %v: want it stuck with a window", s, err)
	}
	c.Abort()
}
