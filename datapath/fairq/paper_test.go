package fairq

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"weir/datapath/internal/frames"
)

// The paper's forms of FairQ on a switch of two ports, with the packets of the program. A packet that leaves by
// one port arrived by the other.

// register is the paper's count of flows: a number for each queue, changed by flags alone.
type register struct {
	flows        [2]int
	finAtIngress bool // of the FIN and the RST only, as in RWNDQ2 and its code; otherwise the FIN's egress, both for a RST
}

func (r *register) packet(out int, flags byte) {
	switch {
	case flags&(frames.SYN|frames.ACK) == frames.SYN|frames.ACK:
		r.flows[0]++
		r.flows[1]++
	case flags&(frames.FIN|frames.RST) != 0 && r.finAtIngress:
		r.end(1 - out)
	case flags&frames.FIN != 0:
		r.end(out)
	case flags&frames.RST != 0:
		r.end(0)
		r.end(1)
	}
}

func (r *register) end(queue int) { r.flows[queue] = max(0, r.flows[queue]-1) }

// paperSwitch is the program, with forms of the paper's register for comparison.
type paperSwitch struct {
	*frameTable
	count     Count
	registers []*register
}

func newPaperSwitch(t *testing.T, count Count, registers ...*register) *paperSwitch {
	return &paperSwitch{newFrameTable(t, frameConfig{count: uint8(count)}), count, registers}
}

// send sends a segment: those from the left leave by port 1.
func (p *paperSwitch) send(t *testing.T, s *frames.Segment) {
	t.Helper()
	out := 0
	if s.From == leftIPv4 {
		out = 1
	}
	p.mustRun(t, out, s.Bytes())
	for _, r := range p.registers {
		r.packet(out, s.Flags)
	}
}

// flows returns the program's counts of both ports.
func (p *paperSwitch) flows(t *testing.T) (n [2]int) {
	t.Helper()
	for i := range n {
		var port fairqPort
		if err := p.Ports.Lookup(uint32(i), &port); err != nil {
			t.Fatal(err)
		}
		if n[i] = int(port.Registered); p.count == CountHandshake {
			continue
		}
		for _, slots := range port.Wheel { // no epoch begins without a timer
			n[i] += int(slots)
		}
	}
	return n
}

// dialogue is a connection whose segments a test sends one by one, from the left or from the right.
type dialogue struct {
	*frameConn
	left, right uint32 // next sequence numbers
}

func (p *paperSwitch) dialogue() *dialogue { return &dialogue{p.conn(frames.IP{}), 3000, 7000} }

func (d *dialogue) fromLeft(flags byte, payload int) *frames.Segment {
	return d.next(d.back(), &d.left, d.right, flags, payload)
}

func (d *dialogue) fromRight(flags byte, payload int) *frames.Segment {
	return d.next(d.segment(), &d.right, d.left, flags, payload)
}

func (d *dialogue) next(s *frames.Segment, seq *uint32, ack uint32, flags byte, payload int) *frames.Segment {
	s.Flags, s.Seq, s.Ack, s.Payload = flags, *seq, ack, make([]byte, payload)
	*seq += uint32(payload)
	if flags&(frames.SYN|frames.FIN) != 0 {
		*seq++
	}
	return s
}

// handshake returns the three segments that open the connection.
func (d *dialogue) handshake() []*frames.Segment {
	syn := d.fromLeft(frames.SYN, 0)
	syn.Options, syn.Ack = d.syn, 0
	answer := d.fromRight(frames.SYN|frames.ACK, 0)
	answer.Options = d.synAck
	return []*frames.Segment{syn, answer, d.fromLeft(frames.ACK, 0)}
}

// Both ways of counting must be right where the paper's register is wrong.
func bothCounts(t *testing.T, f func(t *testing.T, count Count)) {
	t.Run("active", func(t *testing.T) { f(t, CountActive) })
	t.Run("handshake", func(t *testing.T) { f(t, CountHandshake) })
}

// A FIN ends the data that leaves by its own egress queue. If the count decreases at the queue of arrival, the
// queue that the other end still sends through has no flow, and nothing limits it.
func TestFQ8_FINEndsTheFlowOfItsEgressQueue(t *testing.T) {
	bothCounts(t, func(t *testing.T, count Count) {
		printed := &register{finAtIngress: true}
		p := newPaperSwitch(t, count, printed)
		d := p.dialogue()
		for _, s := range d.handshake() {
			p.send(t, s)
		}
		if got := p.flows(t); got != [2]int{1, 1} || printed.flows != got {
			t.Errorf("established: %v, as printed %v", got, printed.flows)
		}
		p.send(t, d.fromLeft(frames.FIN|frames.ACK, 0))
		p.send(t, d.fromRight(frames.ACK, 1000)) // the right goes on
		if printed.flows != [2]int{0, 1} {
			t.Errorf("as printed %v: this test shows nothing", printed.flows)
		}
		if got := p.flows(t); got != [2]int{1, 0} {
			t.Errorf("the left has ended: %v", got)
		}
		// The right's data leaves by port 0, which has the flow and so limits its windows.
		p.setGrant(t, 0, rowGrant)
		ack := d.fromLeft(frames.ACK, 0)
		out, err := p.run(1, ack.Bytes(), 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		v := frames.Parse(out)
		if got := v.Window(); got != rowGrant>>2 {
			t.Errorf("the left's ACK grants %d, want %d", got, rowGrant>>2)
		}
		p.send(t, d.fromRight(frames.FIN|frames.ACK, 0))
		if got := p.flows(t); got != [2]int{} || printed.flows != got {
			t.Errorf("both have ended: %v, as printed %v", got, printed.flows)
		}
	})
}

// A RST ends both directions. The code decreases the count of the queue of arrival only: the other leaks, and
// each reset takes a share for ever.
func TestFQ8_RSTEndsBothFlows(t *testing.T) {
	bothCounts(t, func(t *testing.T, count Count) {
		const connections = 10
		printed := &register{finAtIngress: true}
		p := newPaperSwitch(t, count, printed)
		for i := range connections {
			d := p.dialogue()
			for _, s := range d.handshake() {
				p.send(t, s)
			}
			p.send(t, d.fromRight(frames.ACK, 1000))
			if i%2 == 0 {
				p.send(t, d.fromLeft(frames.RST|frames.ACK, 0))
			} else {
				p.send(t, d.fromRight(frames.RST, 0))
			}
		}
		if printed.flows != [2]int{connections / 2, connections / 2} {
			t.Errorf("as printed %v: this test shows nothing", printed.flows)
		}
		if got := p.flows(t); got != [2]int{} {
			t.Errorf("%v flows after %d resets", got, connections)
		}
	})
}

// A SYN-ACK or FIN sent again counts once. A plain register counts each: a SYN-ACK too many shrinks every share
// until the queue is idle, a FIN too many removes another flow's share.
func TestFQ9_RetransmissionsCountOnce(t *testing.T) {
	bothCounts(t, func(t *testing.T, count Count) {
		plain := &register{}
		p := newPaperSwitch(t, count, plain)
		other, d := p.dialogue(), p.dialogue()
		for _, s := range other.handshake() {
			p.send(t, s)
		}
		open := d.handshake()
		for _, s := range append(append([]*frames.Segment{open[0]}, open...), open[1], open[2]) {
			p.send(t, s)
		}
		if plain.flows != [2]int{3, 3} {
			t.Errorf("plain register: %v of 2 connections: this test shows nothing", plain.flows)
		}
		if got := p.flows(t); got != [2]int{2, 2} {
			t.Errorf("a SYN-ACK sent again: %v flows of 2 connections", got)
		}
		fin := d.fromLeft(frames.FIN|frames.ACK, 0)
		for range 4 {
			p.send(t, fin)
		}
		if plain.flows[1] != 0 {
			t.Errorf("plain register: %v: this test shows nothing", plain.flows)
		}
		if got := p.flows(t); got != [2]int{2, 1} {
			t.Errorf("a FIN sent again: %v flows, want one way of two connections and the other of one", got)
		}
	})
}

// Over many connections whose handshakes and ends are sent again at random, the count is right after each
// packet of the table, and the plain register's error grows.
func TestFQ9_CountStaysRight(t *testing.T) {
	bothCounts(t, func(t *testing.T, count Count) {
		const connections = 400
		plain := &register{}
		p := newPaperSwitch(t, count, plain)
		r := rand.New(rand.NewPCG(9, uint64(count)))
		send := func(s *frames.Segment) {
			for again := true; again; again = r.IntN(4) == 0 {
				p.send(t, s)
			}
		}
		var live [2]int
		var open []*dialogue
		drift := 0
		for range connections {
			d := p.dialogue()
			for _, s := range d.handshake() {
				send(s)
			}
			live[0], live[1], open = live[0]+1, live[1]+1, append(open, d)
			if len(open) > 5 {
				i := r.IntN(len(open))
				d = open[i]
				open = append(open[:i], open[i+1:]...)
				send(d.fromLeft(frames.ACK, r.IntN(1000)))
				send(d.fromLeft(frames.FIN|frames.ACK, 0))
				send(d.fromRight(frames.ACK, r.IntN(1000)))
				send(d.fromRight(frames.FIN|frames.ACK, 0))
				live[0], live[1] = live[0]-1, live[1]-1
			}
			if got := p.flows(t); got != live {
				t.Fatalf("%v flows, want %v", got, live)
			}
			drift = max(drift, plain.flows[0]-live[0], live[0]-plain.flows[0])
		}
		if drift < 3 {
			t.Errorf("the plain register is wrong by %d at most: this test shows nothing", drift)
		}
		t.Logf("the plain register is wrong by up to %d of %d flows", drift, live[0])
	})
}

// A SYN-ACK's window is in bytes, whatever scale it announces. As printed it is scaled like any other, and the
// first window of a connection is a few bytes.
func TestFQ14_WindowOfASYNACKIsWrittenUnscaled(t *testing.T) {
	starved := 0
	p := newPaperSwitch(t, CountActive)
	for shift := byte(0); shift <= 14; shift++ {
		d := p.dialogue()
		d.synAck = frames.List(frames.OptionNop, frames.MSS(1460), frames.Scale(shift))
		open := d.handshake()
		p.send(t, open[0])
		p.setGrant(t, 1, rowGrant) // another flow's: the port already has one
		got, err := p.run(0, open[1].Bytes(), 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := with(open[1], func(s *frames.Segment) { s.Window = rowGrant })
		if string(got) != string(want) {
			t.Errorf("announces %d:\n out  %x\n want %x", shift, got, want)
		}
		if asPrinted := rowGrant >> shift; asPrinted < 1460 {
			starved++
		}
	}
	if starved == 0 {
		t.Error("as printed each shift grants an MSS: this test shows nothing")
	}
}

// CSum + Rwnd' - Rwnd has the sign of a sum, but a checksum is a sum's complement. Each receiver would drop
// nearly every ACK.
func TestFQ15_ChecksumOfARewrittenACK(t *testing.T) {
	const acks = 2000
	p := newPaperSwitch(t, CountActive)
	d := p.dialogue()
	for _, s := range d.handshake() {
		p.send(t, s)
	}
	r := rand.New(rand.NewPCG(15, 1))
	dropped := 0
	for range acks {
		p.setGrant(t, 1, 1462+r.Uint64N(1<<16))
		s := d.fromRight(frames.ACK, r.IntN(200))
		s.Window = uint16(1024 + r.UintN(1<<16-1024))
		in := s.Bytes()
		out, err := p.run(0, in, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		before, after := frames.Parse(in), frames.Parse(out)
		if got := after.ChecksumError(); got != 0 {
			t.Fatalf("window %d to %d: the checksum is off by %#x", before.Window(), after.Window(), got)
		}
		checksum := func(v frames.View) uint16 { return binary.BigEndian.Uint16(v.Frame[v.L4+16:]) }
		sum := uint32(checksum(before)) + uint32(after.Window()) + uint32(^before.Window())
		for sum>>16 != 0 {
			sum = sum&0xffff + sum>>16
		}
		if uint16(sum) != checksum(after) {
			dropped++
		}
	}
	if dropped < acks*9/10 {
		t.Errorf("as printed only %d of %d are wrong: this test shows nothing", dropped, acks)
	}
}
