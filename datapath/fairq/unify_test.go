package fairq

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/internal/frames"
)

// unifyTable is a switch that unifies to this shift.
func unifyTable(t *testing.T, shift uint8) *frameTable {
	t.Helper()
	return newFrameTable(t, frameConfig{scale: scaleUnify, unifyShift: shift})
}

// scaleOptions returns a SYN's options, with the shift at any offset. -1: none.
func scaleOptions(shift, nops int) []byte {
	list := [][]byte{frames.MSS(1460), bytes.Repeat(frames.Nop, nops)}
	if shift >= 0 {
		list = append(list, frames.Scale(byte(shift)))
	}
	return frames.List(frames.OptionNop, append(list, frames.Timestamps(1, 2))...)
}

// handshake returns a connection's SYN and SYN-ACK.
func (c *frameConn) handshake() (syn, synAck *frames.Segment) {
	syn, synAck = c.back(), c.segment()
	syn.Flags, syn.Seq, syn.Ack, syn.Options = frames.SYN, 3000, 0, c.syn
	synAck.Flags, synAck.Seq, synAck.Options = frames.SYN|frames.ACK, 7000, c.synAck
	return syn, synAck
}

// comes fails unless this frame comes out of a port, with a checksum of the whole packet and without one. It
// sends it twice, which equals a retransmission.
func (s *frameSwitch) comes(t *testing.T, name string, port int, in, want *frames.Segment) {
	t.Helper()
	for _, flags := range []uint32{0, testRunChecksumComplete} {
		out, err := s.run(port, in.Bytes(), flags, nil)
		if err != nil || !bytes.Equal(out, want.Bytes()) {
			t.Errorf("%s, out of port %d: %v\n in   %x\n out  %x\n want %x", name, port, err, in.Bytes(), out, want.Bytes())
		}
	}
}

// unified returns the window field that must come out, calculated plainly: the end's room in whole steps, or
// the grant in steps begun, whichever is less. grant 0: no limit.
func unified(field uint16, own, announced int, grant uint64) uint16 {
	step := uint64(1) << announced
	room := uint64(field) << own / step
	if limited := (grant + step - 1) / step; grant > 0 && limited < room {
		room = limited
	}
	return uint16(min(room, 65535))
}

// Every pair of scales, with and without the option: SYNs announce the unified scale, also when they are sent
// again. Windows are converted to it, whether anything is granted or not. If one end has no option, nothing is
// converted.
func TestFairQUnify_EveryPairOfScales(t *testing.T) {
	for _, announced := range []int{0, 7, 11, 14} {
		f := unifyTable(t, uint8(announced))
		for left := -1; left <= 16; left++ {
			for right := -1; right <= 16; right++ {
				c := f.conn(frames.IP{})
				nops := (left + 1) % 4
				c.syn, c.synAck = scaleOptions(left, nops), scaleOptions(right, nops)
				name := fmt.Sprintf("scales %d and %d, unified %d", left, right, announced)
				syn, synAck := c.handshake()
				wantSYN, wantSYNACK := *syn, *synAck
				if left >= 0 {
					wantSYN.Options = scaleOptions(announced, nops)
				}
				both := left >= 0 && right >= 0
				if both {
					wantSYNACK.Options = scaleOptions(announced, nops)
				}
				f.setGrant(t, 1, 0)
				f.comes(t, name+": SYN", 1, syn, &wantSYN)
				f.comes(t, name+": SYN-ACK", 0, synAck, &wantSYNACK)
				if both || left < 0 {
					f.comes(t, name+": SYN after its answer", 1, syn, &wantSYN)
				}
				f.mustRun(t, 1, c.back().Bytes())
				f.windows(t, name, c, [2]int{left, right}, announced, both)
				f.comes(t, name+": SYN-ACK sent again", 0, synAck, &wantSYNACK)
			}
		}
	}
}

// windows sends acknowledgements of both ends, with several windows, under several grants.
func (f *frameTable) windows(t *testing.T, name string, c *frameConn, scales [2]int, announced int, both bool) {
	t.Helper()
	for port, own := range []int{min(scales[1], 14), min(scales[0], 14)} {
		to := announced
		if !both {
			own, to = 0, 0
		}
		for _, grant := range []uint64{0, 1461, 25600, 1 << 33} {
			f.setGrant(t, port, 0)
			f.setGrant(t, 1-port, grant)
			for _, field := range []uint16{0, 1, 100, 4097, 60000, 65535} {
				s := c.segment()
				if port == 1 {
					s = c.back()
				}
				s.Window = field
				want := *s
				want.Window = unified(field, own, to, grant)
				f.comes(t, fmt.Sprintf("%s: window %d, granted %d", name, field, grant), port, s, &want)
			}
		}
	}
}

// The counters show what the law made of a window, not its unit.
func TestFairQUnify_Counts(t *testing.T) {
	f := unifyTable(t, 9)
	c := f.conn(frames.IP{})
	c.open(t, f.frameSwitch)
	s := c.segment()
	want := func(window uint16) []byte { return with(s, func(s *frames.Segment) { s.Window = window }) }
	f.row(t, "limited", s.Bytes(), want(rowGrant>>9), fairqPortCounts{Rewritten: 1})
	f.setGrant(t, 1, 1<<33)
	f.row(t, "small enough", s.Bytes(), want(rowWindow>>2), fairqPortCounts{Smaller: 1})
	f.setGrant(t, 1, 0)
	f.row(t, "nothing granted", s.Bytes(), want(rowWindow>>2), fairqPortCounts{Ungoverned: 1})
	for _, end := range []*frames.Segment{c.segment(), c.back()} {
		end.Flags |= frames.FIN
		f.mustRun(t, 0, end.Bytes())
	}
	f.row(t, "closed, still acknowledging", s.Bytes(), want(rowWindow>>2), fairqPortCounts{Ungoverned: 1})
}

// The right edge stays where the receiver put it, except for rounding.
func TestFairQUnify_KeepsRightEdge(t *testing.T) {
	const announced = 9
	f := newFrameTable(t, frameConfig{scale: scaleUnify, unifyShift: announced, shrink: uint8(ShrinkAvoid)})
	c := f.conn(frames.IP{})
	c.open(t, f.frameSwitch)
	s := c.segment()
	check := func(name string, want uint16) {
		t.Helper()
		w := *s
		w.Window = want
		f.comes(t, name, 0, s, &w)
	}
	check("the first", rowWindow<<rowShift>>announced)
	s.Ack += rowWindow<<rowShift - 30_000
	check("near the edge", (30_000+1<<announced-1)>>announced)
	s.Ack += 30_000
	check("at the edge", rowGrant>>announced)
}

// Windows without a changed SYN are as with `learn`: of connections older than the switch, of those whose SYN
// it missed, and of signed ones.
func TestFairQUnify_LeavesOthersTheirScale(t *testing.T) {
	f := unifyTable(t, 9)
	adopted := f.conn(frames.IP{})
	adopted.adopt(t, f.frameSwitch)
	f.rewritten(t, "adopted", adopted.segment(), rowGrant, fairqPortCounts{})

	missed := f.conn(frames.IP{})
	_, synAck := missed.handshake()
	f.comes(t, "SYN-ACK without SYN", 0, synAck, synAck)
	f.mustRun(t, 1, missed.back().Bytes())
	f.setGrant(t, 1, rowGrant)
	f.rewritten(t, "SYN missed", missed.segment(), rowField, fairqPortCounts{})

	signed := f.conn(frames.IP{})
	md5 := frames.Option(frames.OptionMD5, make([]byte, 16)...)
	signed.syn = frames.List(frames.OptionNop, frames.MSS(1460), frames.Scale(2), md5)
	signed.synAck = frames.List(frames.OptionNop, frames.MSS(1460), frames.Scale(7), md5)
	syn, synAck := signed.handshake()
	f.comes(t, "signed SYN", 1, syn, syn)
	f.comes(t, "signed SYN-ACK", 0, synAck, synAck)
	f.mustRun(t, 1, signed.back().Bytes())
	s := signed.segment()
	s.Options = frames.List(frames.OptionNop, md5)
	f.same(t, "of a signed connection", s.Bytes(), fairqPortCounts{Signed: 1})

	later := f.conn(frames.IP{})
	later.open(t, f.frameSwitch)
	s = later.segment()
	s.Options = frames.List(frames.OptionNop, md5)
	f.rewritten(t, "an option that its SYNs did not have", s, rowGrant>>9, fairqPortCounts{})
}

// A second switch on the path sees the unified scale, and converts nothing.
func TestFairQUnify_SecondSwitchChangesNothing(t *testing.T) {
	for _, announced := range []uint8{0, 7, 14} {
		first, second := unifyTable(t, announced), unifyTable(t, announced)
		c := first.conn(frames.IP{})
		syn, synAck := c.handshake()
		both := func(name string, port int, s *frames.Segment) {
			t.Helper()
			first.setGrant(t, 1-port, 0)
			second.setGrant(t, 1-port, 0)
			between, err := first.run(port, s.Bytes(), 0, nil)
			out, err2 := second.run(port, between, 0, nil)
			if err = errors.Join(err, err2); err != nil || !bytes.Equal(out, between) {
				t.Errorf("%s, unified %d: %v\n first  %x\n second %x", name, announced, err, between, out)
			}
		}
		both("SYN", 1, syn)
		both("SYN-ACK", 0, synAck)
		both("left", 1, c.back())
		both("right", 0, c.segment())
	}
}

// The scale announced to an end stays for its connection, also under a program that announces another scale,
// and if there is no room for the connection in the table.
func TestFairQUnify_KeepsItsWord(t *testing.T) {
	f := newFrameTable(t, frameConfig{scale: scaleUnify, unifyShift: 9, flows: 1, pending: 1024})
	first, full := f.conn(frames.IP{}), f.conn(frames.IP{})
	for _, c := range []*frameConn{first, full} {
		c.open(t, f.frameSwitch)
		f.counted(t, 0)
		for range 3 {
			s := c.segment()
			f.comes(t, fmt.Sprintf("connection of port %d", c.port), 0, s, &frames.Segment{
				Link: s.Link, IP: s.IP, FromPort: s.FromPort, ToPort: s.ToPort, Seq: s.Seq, Ack: s.Ack, Flags: s.Flags, Window: rowGrant >> 9,
			})
		}
	}
	if n := f.counts(t, 0).TableFull; n == 0 {
		t.Error("the table was not full: this test shows nothing")
	}
	spec, err := loadFairq()
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]uint8{fairqVarScale: scaleUnify, fairqVarUnifyShift: 3} {
		if err := spec.Variables[name].Set(value); err != nil {
			t.Fatal(err)
		}
	}
	setTables(spec, 1, 1024)
	var other fairqPrograms
	if err := spec.LoadAndAssign(&other, &ebpf.CollectionOptions{MapReplacements: f.shared()}); err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	f.programs[0] = other.WeirFairq
	f.row(t, "under another program", first.segment().Bytes(), with(first.segment(), func(s *frames.Segment) { s.Window = rowGrant >> 9 }),
		fairqPortCounts{Rewritten: 1})
	_, synAck := first.handshake()
	announced := *synAck
	announced.Options = frames.List(frames.OptionNop, frames.MSS(1460), frames.Scale(9))
	announced.Window = rowGrant
	f.comes(t, "SYN-ACK sent again under another program", 0, synAck, &announced)
}

// Both ends' scales stay correct when the handshake loses a frame and the SYN-ACK is sent again.
func TestFairQFrames_AnswerSentAgain(t *testing.T) {
	f := newFrameTable(t, frameConfig{})
	c := f.conn(frames.IP{})
	syn, synAck := c.handshake()
	f.mustRun(t, 1, syn.Bytes())
	for range 3 {
		f.mustRun(t, 0, synAck.Bytes())
	}
	f.mustRun(t, 1, c.back().Bytes())
	f.setGrant(t, 0, rowGrant)
	f.setGrant(t, 1, rowGrant)
	f.rewritten(t, "the right end's", c.segment(), rowField, fairqPortCounts{})
	back, want := c.back(), c.back()
	want.Window = rowGrant >> 2
	f.comes(t, "the left end's", 1, back, want)
}
