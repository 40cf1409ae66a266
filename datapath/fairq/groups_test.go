package fairq

import (
	"net/netip"
	"reflect"
	"testing"

	"weir/datapath/attach"
	"weir/datapath/internal/frames"
	"weir/internal/testseed"
)

// By sequence numbers the program recognises what is sent again: whole segments, parts of them, across the end
// of the sequence space. It also counts what is acknowledged, up to what was sent.
func TestFairQFrames_GroupBytes(t *testing.T) {
	type step struct {
		seq, bytes  uint32 // from the first byte; 0 bytes: an acknowledgement up to seq
		again, more uint64 // sent again; acknowledged
	}
	steps := []step{
		{0, 1000, 0, 0}, {1000, 1000, 0, 0}, {0, 1000, 1000, 0}, {1500, 1000, 500, 0}, {2500, 1, 0, 0},
		{1000, 0, 0, 1000}, {1000, 0, 0, 0}, {500, 0, 0, 0}, {2501, 0, 0, 1501},
		{0, 2600, 2501, 0}, // astride, from the beginning
		{5000, 100, 0, 0},  // a gap: the bytes before took another path, or were lost
		{2600, 1000, 1000, 0},
		{1 << 31, 0, 0, 0}, {5101, 0, 0, 2599}, {9999, 0, 0, 0}, // never sent: counts up to what was sent
		{5100, 1400, 0, 0}, {6500, 0, 0, 1400},
		{6499, 1, 1, 0}, // a probe of a closed window
	}
	for _, first := range []uint32{3001, 0, 1<<31 - 2000, 1<<32 - 1, 1<<32 - 1500, 1<<32 - 5050} {
		for _, mode := range []Mode{EnforceAll, EnforceNone} {
			f := newFrameTable(t, frameConfig{law: modeLaw(mode, 0)})
			c := f.conn(frames.IP{})
			f.openAt(t, c, first-1)
			group := 1
			if mode == EnforceNone {
				group = 0
			}
			for i, s := range steps {
				before := f.dataGroups(t)[group]
				seg, port := c.back(), 1
				seg.Seq, seg.Payload = first+s.seq, make([]byte, s.bytes)
				if s.bytes == 0 {
					seg, port = c.segment(), 0
					seg.Ack = first + s.seq
				}
				f.mustRun(t, port, seg.Bytes())
				after := f.dataGroups(t)[group]
				got := [3]uint64{after.DataBytes - before.DataBytes, after.RetransmittedBytes - before.RetransmittedBytes, after.AckedBytes - before.AckedBytes}
				if want := [3]uint64{uint64(s.bytes), s.again, s.more}; got != want {
					t.Errorf("first %d, %v, step %d %+v: sent, sent again, acknowledged %v, want %v", first, mode, i, s, got, want)
				}
			}
		}
	}
}

// openAt opens a connection whose opener's SYN has this sequence number.
func (s *frameSwitch) openAt(t *testing.T, c *frameConn, number uint32) {
	t.Helper()
	syn, synAck, ack := c.back(), c.segment(), c.back()
	syn.Flags, syn.Seq, syn.Ack, syn.Options = frames.SYN, number, 0, c.syn
	synAck.Flags, synAck.Seq, synAck.Ack, synAck.Options = frames.SYN|frames.ACK, 7000, number+1, c.synAck
	ack.Seq = number + 1
	s.mustRun(t, 1, syn.Bytes())
	s.mustRun(t, 0, synAck.Bytes())
	s.mustRun(t, 1, ack.Bytes())
}

// A GSO packet counts the bytes of all its segments, also when it is sent again.
func TestFairQFrames_GroupGSO(t *testing.T) {
	f := newFrameTable(t, frameConfig{})
	c := f.conn(frames.IP{})
	c.open(t, f.frameSwitch)
	seg := c.back()
	seg.Payload = make([]byte, 3000)
	in := seg.Bytes()
	for i := range 2 {
		if _, err := f.run(1, in, 0, skbContext(3, uint32(len(in)))); err != nil {
			t.Fatal(err)
		}
		if got, want := f.dataGroups(t)[1], uint64(3000*i); got.DataBytes != 3000+want || got.RetransmittedBytes != want {
			t.Errorf("sent %d times: %+v", i+1, got)
		}
	}
}

// A handshake's round trip is timed at both ports when each of its segments passed once.
func TestFairQFrames_HandshakeRTT(t *testing.T) {
	segments := func(c *frameConn) (syn, synAck, ack []byte) {
		s, a, k := c.back(), c.segment(), c.back()
		s.Flags, s.Seq, s.Ack, s.Options = frames.SYN, 3000, 0, c.syn
		a.Flags, a.Seq, a.Options = frames.SYN|frames.ACK, 7000, c.synAck
		return s.Bytes(), a.Bytes(), k.Bytes()
	}
	for count := range uint8(2) {
		for _, r := range []struct {
			order string // s: SYN, a: SYN-ACK, k: the ACK, d: data of the acceptor
			timed bool
		}{
			{"sak", true}, {"ssak", false}, {"saak", false}, {"ak", false}, {"sk", false}, {"sad", false}, {"sakk", true}, {"sakss", true},
		} {
			f := newFrameTable(t, frameConfig{count: count})
			c := f.conn(frames.IP{})
			syn, synAck, ack := segments(c)
			data := with(c.segment(), func(s *frames.Segment) { s.Payload = make([]byte, 10) })
			begin := attach.MonotonicNs()
			for _, step := range r.order {
				switch step {
				case 's':
					f.mustRun(t, 1, syn)
				case 'a':
					f.mustRun(t, 0, synAck)
				case 'k':
					f.mustRun(t, 1, ack)
				case 'd':
					f.mustRun(t, 0, data)
				}
			}
			most := attach.MonotonicNs() - begin
			for port := range uint32(2) {
				var p fairqPort
				if err := f.Ports.Lookup(port, &p); err != nil {
					t.Fatal(err)
				}
				if timed := p.RttNs > 0; timed != r.timed || uint64(p.RttNs) > most {
					t.Errorf("count %d, %s: port %d has a round trip of %d ns, of %d at most", count, r.order, port, p.RttNs, most)
				}
			}
		}
	}
}

// The least of two spans of time counts; older ones do not.
func TestFairQStats_HandshakeRTTIsRecent(t *testing.T) {
	const span = 1 << rttSpanLog2Ns
	for _, r := range []struct {
		rtt, before uint32
		later       uint64 // spans since the last one that had any
		want        int64
	}{
		{0, 0, 0, 0}, {500, 0, 0, 500}, {500, 300, 0, 300}, {300, 500, 0, 300}, {500, 300, 1, 500}, {500, 300, 2, 0}, {500, 300, 1 << 20, 0},
	} {
		p := fairqPort{RttNs: r.rtt, RttBeforeNs: r.before, RttSpan: 7}
		if got := p.handshakeRTT((7+r.later)*span + span - 1); got.Nanoseconds() != r.want {
			t.Errorf("%+v: %v", r, got)
		}
	}
}

// Directions of which one side passes alone are found within a second; those of which both pass never are. A
// direction that begins, ends, or is sent again without an answer does not count.
func TestFairQFrames_OneSided(t *testing.T) {
	for _, r := range []struct {
		name       string
		open       string // handshakes seen before: of both ends, the SYN alone, none
		data, acks bool   // pass in each sweep
		again      bool   // the data is always the same
		pauses     int    // number of sweeps without packets between those with packets
		want       [2]uint32
	}{
		{name: "both", open: "both", data: true, acks: true},
		{name: "data", open: "none", data: true, want: [2]uint32{1, 0}},
		{name: "data behind its SYN", open: "syn", data: true, want: [2]uint32{1, 0}},
		{name: "data of a known connection", open: "both", data: true, want: [2]uint32{1, 0}},
		{name: "acks", open: "none", acks: true, want: [2]uint32{0, 1}},
		{name: "acks of a known connection", open: "both", acks: true, want: [2]uint32{0, 1}},
		{name: "data sent again to nobody", open: "both", data: true, again: true},
		{name: "data, now and then, whose acknowledgements come after the sweep", open: "both", data: true, pauses: 7},
		{name: "acks, now and then", open: "both", acks: true, pauses: 7},
		{name: "data every half second", open: "both", data: true, pauses: 1, want: [2]uint32{1, 0}},
		{name: "idle", open: "both"},
		{name: "half-open", open: "syn"},
	} {
		f := newFrameTable(t, frameConfig{})
		c := f.conn(frames.IP{})
		switch r.open {
		case "both":
			c.open(t, f.frameSwitch)
		case "syn":
			syn := c.back()
			syn.Flags, syn.Seq, syn.Ack, syn.Options = frames.SYN, 3000, 0, c.syn
			f.mustRun(t, 1, syn.Bytes())
		}
		data, ack := c.back(), c.segment()
		data.Payload = make([]byte, 100)
		var got [2]uint32
		for sweep := range 16 {
			if !r.again || sweep == 0 {
				data.Seq += 100
			}
			ack.Ack = data.Seq + 100
			passes := sweep%(r.pauses+1) == 0
			if r.data && passes {
				f.mustRun(t, 1, data.Bytes())
			}
			if r.acks && passes {
				f.mustRun(t, 0, ack.Bytes())
			}
			f.sweep(t)
			data1, acks0 := f.oneSided(t, 1), f.oneSided(t, 0)
			got = [2]uint32{data1[0], acks0[1]}
			if data1[1] != 0 || acks0[0] != 0 {
				t.Errorf("%s: counted at the wrong port: %v, %v", r.name, data1, acks0)
			}
			if (sweep < 4 || r.want == [2]uint32{}) && got != [2]uint32{} {
				t.Errorf("%s: %v found after %d sweeps", r.name, got, sweep+1)
			}
		}
		if got != r.want {
			t.Errorf("%s: %d directions with data alone, %d with acknowledgements alone; want %d and %d", r.name, got[0], got[1], r.want[0], r.want[1])
		}
	}
}

// oneSided returns the number of directions with data alone, and with acknowledgements alone, at a port.
func (s *frameSwitch) oneSided(tb testing.TB, port uint32) [2]uint32 {
	tb.Helper()
	var p fairqPort
	if err := s.Ports.Lookup(port, &p); err != nil {
		tb.Fatal(err)
	}
	a, err := s.groups(port, &p)
	if err != nil {
		tb.Fatal(err)
	}
	return [2]uint32{a.oneSidedData, a.oneSidedAcks}
}

// The sweep counts the flows of each group: together they are those that the port counts.
func TestFairQFrames_GroupFlows(t *testing.T) {
	r := testseed.New(t)
	for count := range uint8(2) {
		law := modeLaw(EnforcePart, Buckets/4)
		f := newFrameTable(t, frameConfig{count: count, law: law})
		f.setSeed(t, [2]uint64{r.Uint64(), r.Uint64()})
		const flows = 400
		want := [2]uint32{}
		for range flows {
			c := f.conn(frames.IP{})
			c.open(t, f.frameSwitch)
			if _, v := f.entry(t, c); v.Bucket >= Buckets-Buckets/4 {
				want[1]++
			} else {
				want[0]++
			}
		}
		f.sweep(t)
		for port := range uint32(2) {
			var p fairqPort
			if err := f.Ports.Lookup(port, &p); err != nil {
				t.Fatal(err)
			}
			a, err := f.groups(port, &p)
			if err != nil {
				t.Fatal(err)
			}
			if got := [2]uint32{a.group[0].Flows, a.group[1].Flows}; got != want || p.Law.Flows != flows {
				t.Errorf("count %d, port %d: %d unlimited and %d limited of %d, want %d and %d", count, port, got[0], got[1], p.Law.Flows, want[0], want[1])
			}
		}
	}
}

// Flows returns both directions of a connection at their ports, with their figures.
func TestFairQFrames_Flows(t *testing.T) {
	f := newFrameTable(t, frameConfig{law: modeLaw(EnforceNone, 0)})
	c := f.conn(frames.IP{})
	c.open(t, f.frameSwitch)
	data, ack := c.back(), c.segment()
	data.Payload = make([]byte, 1300)
	f.mustRun(t, 1, data.Bytes())
	ack.Ack, ack.Window = data.Seq+200, 500
	f.mustRun(t, 0, ack.Bytes())
	data.Seq, data.Payload = data.Seq+1300, make([]byte, 100)
	f.mustRun(t, 1, data.Bytes())
	list := func(id uint32) (all []Flow) {
		t.Helper()
		for flow, err := range f.portFlows(id) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, flow)
		}
		return all
	}
	left, right := netip.AddrPortFrom(leftIPv4, c.port), netip.AddrPortFrom(rightIPv4, 80)
	want := []Flow{{
		From: left, To: right, Counted: true, Seen: true, InFlightBytes: 1300, OfferedBytes: 64000, GrantedBytes: 51200, Acknowledged: 3201, Scale: rowShift,
	}}
	if got := list(1); !reflect.DeepEqual(got, want) {
		t.Errorf("out of port 1: %+v, want %+v", got, want)
	}
	if got := list(0); len(got) != 1 || got[0].From != right || got[0].To != left || got[0].InFlightBytes != 0 {
		t.Errorf("out of port 0: %+v", got)
	}
	f.sweep(t)
	f.mustRun(t, 0, ack.Bytes())
	if got := list(1); len(got) != 1 || got[0].InFlightBytes != 1300 {
		t.Errorf("a sweep later: %+v", got)
	}
	f.sweep(t)
	f.sweep(t)
	if got := list(1); len(got) != 1 || got[0].Seen || got[0].InFlightBytes != 0 {
		t.Errorf("silent: %+v", got)
	}
	if got := list(2); got != nil {
		t.Errorf("out of another port: %+v", got)
	}
	for flow, err := range f.portFlows(1) { // the caller may stop at any time
		if err != nil || flow.From != left {
			t.Errorf("%+v, %v", flow, err)
		}
		break
	}
}
