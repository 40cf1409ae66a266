package fairq

import (
	"bytes"
	"encoding/binary"
	"testing"

	"weir/datapath/internal/frames"
)

// twinTable makes a switch whose port 1, the device with twinIfindex, is one of so many equal paths.
func twinTable(t *testing.T, paths, divisor uint16) *frameTable {
	t.Helper()
	f := newFrameTable(t, frameConfig{})
	f.twin(t, func(c *fairqPortConfig) { c.Ifindex, c.Paths, c.Divisor = twinIfindex, paths, divisor })
	f.setGrant(t, 0, 0)
	f.setGrant(t, 1, rowGrant)
	return f
}

const twinIfindex = 7777

// twin changes the configuration of port 1.
func (f *frameTable) twin(t *testing.T, change func(*fairqPortConfig)) {
	t.Helper()
	var c fairqPortConfig
	if err := f.Configs.Lookup(uint32(1), &c); err != nil {
		t.Fatal(err)
	}
	change(&c)
	if err := f.Configs.Put(uint32(1), c); err != nil {
		t.Fatal(err)
	}
}

// from sends a segment that arrived by a device out of port 0. It checks the window that the segment leaves
// with and the counters.
func (f *frameTable) from(t *testing.T, name string, ifindex uint32, s *frames.Segment, window uint16, why fairqPortCounts) {
	t.Helper()
	skb := make([]byte, 192)
	binary.NativeEndian.PutUint32(skb[36:], ifindex)
	f.counted(t, 0)
	out, err := f.run(0, s.Bytes(), 0, skb)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if want := with(s, func(s *frames.Segment) { s.Window = window }); !bytes.Equal(out, want) {
		v := frames.Parse(out)
		t.Errorf("%s: window %d, want %d", name, v.Window(), window)
	}
	why.Seen = 1
	if got := f.counted(t, 0); got != why {
		t.Errorf("%s: counted %+v, want %+v", name, got, why)
	}
}

// answer sends the SYN-ACK of a connection whose SYN took another path.
func (f *frameTable) answer(t *testing.T) (*frameConn, *frames.Segment) {
	t.Helper()
	c := f.conn(frames.IP{})
	synAck := c.segment()
	synAck.Flags, synAck.Seq, synAck.Options = frames.SYN|frames.ACK, 7000, c.synAck
	f.mustRun(t, 0, synAck.Bytes())
	return c, c.segment()
}

var (
	assumed = fairqPortCounts{Rewritten: 1, Assumed: 1}
	unseen  = fairqPortCounts{Unknown: 1}
)

// If the data takes another switch, its ACKs are limited to the window of the port that they arrived by,
// divided by the number of equal paths, or whole. Without another path they pass.
func TestECMP_DataTakesAnotherSwitch(t *testing.T) {
	for _, r := range []struct{ paths, divisor, window uint16 }{{2, 2, rowField / 2}, {4, 4, rowField / 4}, {2, 1, rowField}} {
		f := twinTable(t, r.paths, r.divisor)
		_, ack := f.answer(t)
		for range 3 {
			f.from(t, "ACK", twinIfindex, ack, r.window, assumed)
		}
		f.from(t, "by a port of nobody's", 4711, ack, rowWindow, unseen)
		f.from(t, "from a switch in user space, which sends by a packet socket", 0, ack, rowWindow, unseen)
		f.from(t, "and back", twinIfindex, ack, r.window, assumed)
		ack.Window = 10
		f.from(t, "small enough", twinIfindex, ack, 10, fairqPortCounts{Smaller: 1, Assumed: 1})
	}
	for _, paths := range []uint16{0, 1} {
		f := twinTable(t, paths, max(1, paths))
		_, ack := f.answer(t)
		f.from(t, "one path", twinIfindex, ack, rowWindow, unseen)
	}
}

// ACKs pass if the switch lacks information. It then has no SYN-ACK and so no scale, or a SYN-ACK that somebody else
// sent. Or the device has the same number in another namespace, or the port has no flows.
func TestECMP_LimitsNothingThatItDoesNotKnow(t *testing.T) {
	f := twinTable(t, 2, 2)
	c := f.conn(frames.IP{})
	f.from(t, "no SYN-ACK", twinIfindex, c.segment(), rowWindow, unseen)
	_, ack := f.answer(t)
	ack.Seq += 1 << 30
	f.from(t, "a forged SYN-ACK", twinIfindex, ack, rowWindow, unseen)
	_, ack = f.answer(t)
	f.twin(t, func(c *fairqPortConfig) { c.NetnsCookie++ })
	f.from(t, "another namespace", twinIfindex, ack, rowWindow, unseen)
	f.twin(t, func(c *fairqPortConfig) { c.NetnsCookie-- })
	f.from(t, "a port that was not there is looked for once a sweep", twinIfindex, ack, rowWindow, unseen)
	f.sweep(t)
	f.from(t, "this one", twinIfindex, ack, rowField/2, assumed)
	f.setGrant(t, 1, 0)
	f.from(t, "no flows", twinIfindex, ack, rowWindow, fairqPortCounts{Ungoverned: 1})
}

// Once the switch has seen the data it knows the port, and divides nothing, whichever port the ACKs arrive by.
func TestECMP_DataThatIsSeenIsNotDivided(t *testing.T) {
	f := twinTable(t, 2, 2)
	c, ack := f.answer(t)
	f.from(t, "before", twinIfindex, ack, rowField/2, assumed)
	f.mustRun(t, 1, c.back().Bytes())
	f.setGrant(t, 0, 0)
	f.setGrant(t, 1, rowGrant)
	for _, ifindex := range []uint32{twinIfindex, 4711, 0} {
		f.from(t, "afterwards", ifindex, ack, rowField, fairqPortCounts{Rewritten: 1})
	}
	c = f.conn(frames.IP{})
	c.open(t, f.frameSwitch)
	f.from(t, "a connection that was always seen", 4711, c.segment(), rowField, fairqPortCounts{Rewritten: 1})
}
