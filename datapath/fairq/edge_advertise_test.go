package fairq

import (
	"testing"
	"time"

	"weir/datapath/internal/frames"
)

// advertiseTable is a table of the switch program in edge mode. Its interval and lease outlast a test unless the
// test sets them.
func advertiseTable(t *testing.T, e EdgeMode) *frameTable {
	t.Helper()
	if e.Interval == 0 {
		e.Interval = time.Hour
	}
	if e.Lease == 0 {
		e.Lease = 2 * time.Hour
	}
	return newFrameTable(t, frameConfig{edge: e})
}

const edgeFlag = 8

// once sends one ACK through the switch, and checks its window, its flag and the counters.
func (f *frameTable) once(t *testing.T, name string, s *frames.Segment, window uint16, reserved byte, why fairqPortCounts) {
	t.Helper()
	f.counted(t, 0)
	out, err := f.run(0, s.Bytes(), 0, nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	want := with(s, func(s *frames.Segment) { s.Window, s.Reserved = window, reserved })
	if string(out) != string(want) {
		v := frames.Parse(out)
		t.Errorf("%s: window %d, bits %d; want %d, %d\n out  %x\n want %x", name, v.Window(), out[v.L4+12]&15, window, reserved, out, want)
	}
	why.Seen = 1
	if got := f.counted(t, 0); got != why {
		t.Errorf("%s: counted %+v, want %+v", name, got, why)
	}
}

var (
	advertisesRewritten = fairqPortCounts{Rewritten: 1, Advertised: 1}
	advertisesSmaller   = fairqPortCounts{Smaller: 1, Advertised: 1}
	leaves              = fairqPortCounts{LeftToEdge: 1}
)

// The first ACK advertises, and each ACK after the window has changed by more than an eighth either way. The
// others pass unchanged.
func TestEdgeAdvertise_Once(t *testing.T) {
	for _, ip := range []frames.IP{{}, {From: rightIPv6, To: leftIPv6}} {
		f := advertiseTable(t, EdgeMode{})
		c := f.conn(ip)
		c.open(t, f.frameSwitch)
		s := c.segment()
		f.once(t, "the first", s, rowField, edgeFlag, advertisesRewritten)
		for range 3 {
			f.once(t, "another", s, rowWindow, 0, leaves)
		}
		for _, g := range []struct {
			grant      uint64
			advertises bool
		}{
			{rowGrant * 9 / 8, false}, {rowGrant * 7 / 8, false}, {rowGrant*9/8 + 1, true}, {rowGrant, false},
			{rowGrant*63/64 - 1, true}, {3000, true}, {3300, false}, {3400, true},
		} {
			f.setGrant(t, 1, g.grant)
			if g.advertises {
				f.once(t, "moved", s, uint16((g.grant+127)>>7), edgeFlag, advertisesRewritten)
			}
			f.once(t, "and again", s, rowWindow, 0, leaves)
		}
		s.Payload = make([]byte, 100) // data with the ACK
		f.setGrant(t, 1, rowGrant)
		f.once(t, "with data", s, rowField, edgeFlag, fairqPortCounts{Rewritten: 1, Advertised: 1, Data: 1})
		f.once(t, "with data, again", s, rowWindow, 0, fairqPortCounts{LeftToEdge: 1, Data: 1})
	}
}

// A limited window is advertised once an interval. After the lease it is advertised as if for the first time.
func TestEdgeAdvertise_Interval(t *testing.T) {
	f := advertiseTable(t, EdgeMode{Interval: 20 * time.Millisecond})
	c := f.conn(frames.IP{})
	c.open(t, f.frameSwitch)
	advertised, sent, began := uint64(0), uint64(0), time.Now()
	until(t, "ten windows are advertised", func() bool {
		f.mustRun(t, 0, c.segment().Bytes())
		sent++
		advertised = f.counts(t, 0).Advertised
		return advertised >= 10
	})
	// Nine intervals pass, whatever the machine did meanwhile. The clock is as coarse as the kernel's tick.
	if passed := time.Since(began); passed < 9*15*time.Millisecond {
		t.Errorf("10 windows were advertised within %v (%d ACKs), want an interval of 20ms between", passed, sent)
	}
	if left := f.counts(t, 0).LeftToEdge; left < sent/2 {
		t.Errorf("%d of %d ACKs were left to the edge", left, sent)
	}
}

// When nothing is limited any longer the edge learns the receiver's own window, while it is larger than the one
// that it remembers. A window that was never advertised is not.
func TestEdgeAdvertise_Release(t *testing.T) {
	f := advertiseTable(t, EdgeMode{})
	c := f.conn(frames.IP{})
	c.open(t, f.frameSwitch)
	s := c.segment()
	f.setGrant(t, 1, 1<<24)
	f.once(t, "never limited", s, rowWindow, 0, fairqPortCounts{Smaller: 1})
	f.setGrant(t, 1, rowGrant)
	f.once(t, "limited", s, rowField, edgeFlag, advertisesRewritten)
	f.setGrant(t, 1, 1<<24)
	s.Window = 10
	f.once(t, "a small window of its own is not advertised", s, 10, 0, leaves)
	s.Window = rowWindow
	f.once(t, "its own", s, rowWindow, edgeFlag, advertisesSmaller)
	f.once(t, "and not again", s, rowWindow, 0, leaves)
	s.Window = 65535
	f.once(t, "a little larger", s, 65535, 0, leaves)
	f.setGrant(t, 1, rowGrant)
	f.once(t, "limited again", s, rowField, edgeFlag, advertisesRewritten)
	f.setGrant(t, 1, 0)
	f.once(t, "nothing governs", s, 65535, edgeFlag, fairqPortCounts{Ungoverned: 1, Advertised: 1})
	f.once(t, "still", s, 65535, 0, leaves)
}

// SYN-ACKs and signed segments never advertise; a SYN-ACK is limited all the same.
func TestEdgeAdvertise_Never(t *testing.T) {
	f := advertiseTable(t, EdgeMode{})
	other := f.conn(frames.IP{})
	other.open(t, f.frameSwitch)
	signed, md5 := f.conn(frames.IP{}), frames.List(frames.OptionNop, frames.Option(frames.OptionMD5, make([]byte, 16)...))
	signed.syn, signed.synAck = md5, md5
	signed.open(t, f.frameSwitch)
	s := signed.segment()
	s.Options = md5
	f.once(t, "signed", s, rowWindow, 0, fairqPortCounts{Signed: 1})
	s.Reserved = edgeFlag
	f.once(t, "signed, with the flag", s, rowWindow, edgeFlag, fairqPortCounts{Signed: 1})
	c := f.conn(frames.IP{})
	syn, synAck := c.back(), c.segment()
	syn.Flags, syn.Seq, syn.Ack, syn.Options = frames.SYN, 3000, 0, c.syn
	synAck.Flags, synAck.Seq, synAck.Options = frames.SYN|frames.ACK, 7000, c.synAck
	f.mustRun(t, 1, syn.Bytes())
	f.once(t, "SYN-ACK", synAck, rowGrant, 0, fairqPortCounts{Rewritten: 1})
}

// Two switches are on the path, this one the second. A window that the other advertised passes, or is lowered.
// This one never advertises a larger one, until the other was silent for the lease.
func TestEdgeAdvertise_SeveralSwitches(t *testing.T) {
	f := advertiseTable(t, EdgeMode{})
	c := f.conn(frames.IP{})
	c.open(t, f.frameSwitch)
	plain, flagged := c.segment(), c.segment()
	flagged.Reserved = edgeFlag
	advertise := func(name string, window, want uint16) {
		t.Helper()
		flagged.Window = window
		why := fairqPortCounts{Smaller: 1}
		if window != want {
			why = fairqPortCounts{Rewritten: 1}
		}
		f.once(t, name, flagged, want, edgeFlag, why)
	}
	advertise("smaller than ours", 50, 50)
	f.once(t, "then", plain, rowWindow, 0, leaves)
	f.setGrant(t, 1, 2*rowGrant)
	f.once(t, "ours is larger still", plain, rowWindow, 0, leaves)
	advertise("larger", 1000, 2*rowField)
	f.once(t, "then", plain, rowWindow, 0, leaves)
	f.setGrant(t, 1, rowGrant)
	f.once(t, "ours shrinks", plain, rowField, edgeFlag, advertisesRewritten)
	advertise("and theirs", 60, 60)
	f.setGrant(t, 1, 1<<24)
	f.once(t, "ours is gone, theirs counts", plain, rowWindow, 0, leaves)
	advertise("theirs grows", 500, 500)
	f.once(t, "then", plain, rowWindow, 0, leaves)

	f = advertiseTable(t, EdgeMode{Interval: 10 * time.Millisecond, Lease: 40 * time.Millisecond})
	c = f.conn(frames.IP{})
	c.open(t, f.frameSwitch)
	plain = c.segment()
	flagged.FromPort, flagged.ToPort = plain.FromPort, plain.ToPort
	advertise("smaller than ours", 50, 50)
	until(t, "the other's lease expires", func() bool {
		out, err := f.run(0, plain.Bytes(), 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		v := frames.Parse(out)
		return v.Window() == rowField
	})
}

// until waits for a condition that the end of a lease causes.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// An unlimited flow passes unchanged, whatever was advertised before, here or by another switch.
func TestEdgeAdvertise_UnlimitedFlows(t *testing.T) {
	ungoverned := fairqPortCounts{Ungoverned: 1}
	f := advertiseTable(t, EdgeMode{})
	c := f.conn(frames.IP{})
	c.open(t, f.frameSwitch)
	plain, flagged := c.segment(), c.segment()
	flagged.Reserved, flagged.Window = edgeFlag, 50
	f.once(t, "limited", plain, rowField, edgeFlag, advertisesRewritten)
	f.setGrant(t, 1, 0)
	f.spare(t, 1, Buckets)
	f.once(t, "free", plain, rowWindow, 0, ungoverned)
	f.once(t, "unlimited, and another switch advertises", flagged, 50, edgeFlag, ungoverned)
	f.once(t, "free still", plain, rowWindow, 0, ungoverned)
	f.spare(t, 1, 0)
	f.once(t, "counted as limited again, and released", plain, rowWindow, edgeFlag, fairqPortCounts{Ungoverned: 1, Advertised: 1})
}

// spare makes the connections in the first buckets unlimited at a port.
func (s *frameSwitch) spare(t *testing.T, id, buckets uint32) {
	t.Helper()
	var p fairqPort
	if err := s.Ports.Lookup(id, &p); err != nil {
		t.Fatal(err)
	}
	p.Spared = buckets
	if err := s.Ports.Put(id, p); err != nil {
		t.Fatal(err)
	}
}
