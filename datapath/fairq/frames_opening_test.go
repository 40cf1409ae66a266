package fairq

import (
	"testing"

	"weir/datapath/internal/frames"
)

// count: opening. By hand: the flows of a port share its target. A SYN-ACK is limited to the share that would
// be left if every open handshake, its own too, became a flow. Active flows are limited to the share of the
// active flows.
func TestFairQFrames_OpenHandshakes(t *testing.T) {
	p := newPaperSwitch(t, CountOpening)
	half := func() (*dialogue, []*frames.Segment) {
		d := p.dialogue()
		h := d.handshake()
		p.send(t, h[0])
		h[1].Window = 65_535
		return d, h
	}
	answer := func(what string, synAck *frames.Segment, want uint32) {
		t.Helper()
		out, err := p.run(0, synAck.Bytes(), 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		v := frames.Parse(out)
		if got := uint32(v.Window()); got != want {
			t.Errorf("%s: a window of %d, want %d", what, got, want)
		}
	}
	granted := func(what string, flows uint32) {
		t.Helper()
		port := p.frameSwitch.port(t, 1)
		want := uint64(0)
		if flows > 0 {
			want = rowTarget << 8 / uint64(flows)
		}
		if port.GrantQ8 != want || port.Law.Flows != flows {
			t.Errorf("%s: %d flows are granted %d bytes each, want %d and %d", what, port.Law.Flows, port.GrantQ8>>8, flows, want>>8)
		}
	}
	one, first := half()
	two, second := half()
	answer("the first, to an idle port", first[1], rowTarget)
	answer("sent again", first[1], rowTarget)
	answer("beside it", second[1], rowTarget/2)
	granted("before a handshake is over", 0)
	p.send(t, first[2])
	granted("one is a flow", 1)
	answer("the other, sent again", second[1], rowTarget/2)
	for range 1000 { // a flood of SYNs in one epoch
		_, h := half()
		p.send(t, h[1])
	}
	granted("half-open ones take nothing from it", 1)
	_, third := half()
	answer("a new flow among them begins with a segment", third[1], 1461)
	p.send(t, second[2])
	granted("and has its share as soon as it sends", 2)

	reset := third[0]
	reset.Flags, reset.Options = frames.RST, nil
	before := p.openings(t, 1)
	p.send(t, reset)
	if got := p.openings(t, 1); got != before-1 {
		t.Errorf("after a reset %d are open, before %d", got, before)
	}
	for range 3 { // their SYNs took another path, and so will the data
		_, h := p.dialogue(), p.dialogue().handshake()
		p.send(t, h[1])
	}
	if got := p.openings(t, 1); got != before-1 {
		t.Errorf("with SYN-ACKs alone %d are open, before %d", got, before-1)
	}
	p.send(t, one.fromLeft(frames.ACK, 1000))
	p.send(t, two.fromLeft(frames.ACK, 1000))
	granted("both send", 2)
}

// openings returns the number of open handshakes of a port.
func (p *paperSwitch) openings(t *testing.T, port int) (n uint32) {
	t.Helper()
	for _, opening := range p.frameSwitch.port(t, port).Opening {
		n += opening
	}
	return n
}
