package fairq

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/internal/frames"
)

// contents reads the flow table.
func (s *frameSwitch) contents(tb testing.TB) (all []fairqConnection) {
	tb.Helper()
	s.walk(tb, func(_ *fairqFlowKey, c *fairqConnection) { all = append(all, *c) })
	return all
}

// entries reads a map with the keys of connections.
func entries[V any](tb testing.TB, m *ebpf.Map) (all []V) {
	tb.Helper()
	err := eachEntry(m, func(_ *fairqFlowKey, v *V) bool {
		all = append(all, *v)
		return true
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// checkLimits checks that no table, and no port's part of it, exceeds its size.
func (r *round) checkLimits(t *testing.T) {
	t.Helper()
	flows, pending := r.contents(t), entries[fairqConnection](t, r.Pending)
	if n := len(flows); n > int(r.config.flows+nearPlaces(r.config.flows)) {
		t.Errorf("%d connections in a table of %d and %d places", n, r.config.flows, nearPlaces(r.config.flows))
	}
	if n := len(pending); n > int(r.config.pending) {
		t.Errorf("%d half-known connections in a table of %d", n, r.config.pending)
	}
	r.flows, r.pending = max(r.flows, len(flows)), max(r.pending, len(pending))
	owned := map[uint16]int{}
	for i := range flows {
		owned[flows[i].Owner]++
	}
	for port := range r.ports {
		n, p := owned[uint16(port+1)], r.port(t, port)
		if int(p.Owned) != n || n > int(r.config.law.FlowsMax) {
			t.Errorf("%d connections opened from port %d, which knows of %d; at most %d", n, port, p.Owned, r.config.law.FlowsMax)
		}
	}
	if owned[0] > 0 {
		t.Errorf("%d connections in no port's share", owned[0])
	}
}

func (s *frameSwitch) port(tb testing.TB, id int) (p fairqPort) {
	tb.Helper()
	if err := s.Ports.Lookup(uint32(id), &p); err != nil {
		tb.Fatal(err)
	}
	return p
}

// armTimers starts the ports' timers, until the round ends.
func (r *round) armTimers(t *testing.T) {
	t.Helper()
	for port := range r.ports {
		if _, err := r.controls(t).WeirFairqArm.Run(&ebpf.RunOptions{Context: fairqPortArg{Id: uint32(port)}}); err != nil {
			t.Fatal(err)
		}
	}
}

// From flows.h: epochs for which a slot counts, and entries of the ring of epochs.
const flowsLive, flowsWheel = 4, 8

// finish stops the round's timers, and checks that the flows that ports count are those in the table.
func (r *round) finish(t *testing.T) {
	t.Helper()
	for port := range r.ports {
		if r.control == nil {
			break // no timer was started
		}
		if _, err := r.control.WeirFairqDisarm.Run(&ebpf.RunOptions{Context: fairqPortArg{Id: uint32(port)}}); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.workers) > 1 {
		return // while packets move slots the count may be one off, until the epoch passes
	}
	flows := r.contents(t)
	for port := range r.ports {
		p := r.port(t, port)
		var slots [flowsWheel]uint32
		registered := uint32(0)
		for i := range flows {
			for _, e := range flows[i].End {
				const epochs = 1<<48 - 1
				if e.Slot>>48 == uint64(port+1) && (p.Epoch-e.Slot)&epochs < flowsLive {
					slots[e.Slot%flowsWheel]++
				}
				if e.Registration == p.Generation && int(e.RegisteredAt) == port && e.Registration != 0 {
					registered++
				}
			}
		}
		for i := range uint64(flowsLive) {
			slot := (p.Epoch - i) % flowsWheel
			if slots[slot] != p.Wheel[slot] {
				t.Errorf("port %d counts %d flows of %d epochs ago; in the table are %d", port, int32(p.Wheel[slot]), i, slots[slot])
			}
		}
		if registered != p.Registered {
			t.Errorf("port %d has %d flows in its register; in the table are %d", port, p.Registered, registered)
		}
	}
}

// A SYN-ACK with data that answers nobody, from ever other ports, must not count as a flow. Otherwise a single
// host takes the share of all others with one forged packet each.
func TestFairQFrames_ForgedSynAcksCountNothing(t *testing.T) {
	f := newFrameTable(t, frameConfig{})
	honest := f.conn(frames.IP{})
	honest.open(t, f.frameSwitch)
	for range 1000 {
		s := f.conn(frames.IP{}).segment()
		s.Flags, s.Payload, s.Options = frames.SYN|frames.ACK, []byte("data"), frames.List(frames.OptionNop, frames.Scale(3))
		f.mustRun(t, 0, s.Bytes())
	}
	if p := f.frameSwitch.port(t, 0); p.Wheel != [flowsWheel]uint32{1} || p.Law.Flows != 1 {
		t.Errorf("port 0 counts %d flows, %v by epochs; one is there", p.Law.Flows, p.Wheel)
	}
	f.checkShares(t, 1, 0)
}

// A host fills the tables from behind one port. Nothing grows past its limit, no other port's share changes,
// present connections stay, and those that are not seen again are removed.
func TestFairQFrames_Floods(t *testing.T) {
	const share, packets = 300, 20_000
	c := frameConfig{flows: 1000, pending: 512, law: fairqPortConfig{FlowsMax: share}}
	for name, attack := range map[string]func(r *rand.Rand, c *frameConn) []*frames.Segment{
		"SYNs": func(_ *rand.Rand, c *frameConn) []*frames.Segment {
			syn := c.back()
			syn.Flags, syn.Options = frames.SYN, c.syn
			return []*frames.Segment{syn}
		},
		"SYN-ACKs": func(r *rand.Rand, c *frameConn) []*frames.Segment {
			s := c.back()
			s.Flags, s.Options, s.Payload = frames.SYN|frames.ACK, c.syn, make([]byte, r.IntN(2))
			return []*frames.Segment{s}
		},
		"data of nobody": func(r *rand.Rand, c *frameConn) []*frames.Segment {
			s := c.back()
			s.Seq, s.Payload = r.Uint32(), make([]byte, 100)
			return []*frames.Segment{s}
		},
		"resets of nobody": func(_ *rand.Rand, c *frameConn) []*frames.Segment {
			s := c.back()
			s.Flags = frames.RST | frames.ACK
			return []*frames.Segment{s}
		},
		"connections": func(_ *rand.Rand, c *frameConn) []*frames.Segment { // both ends are the attacker's
			syn, synAck := c.back(), c.segment()
			syn.Flags, syn.Seq, synAck.Flags = frames.SYN, 3000, frames.SYN|frames.ACK
			synAck.Seq = 7000
			return []*frames.Segment{syn, synAck, c.back(), c.segment(), c.back()}
		},
		"connections that seem older": func(r *rand.Rand, c *frameConn) []*frames.Segment {
			data, ack := c.back(), c.segment()
			data.Payload = make([]byte, r.IntN(100))
			return []*frames.Segment{data, ack, data}
		},
		"connections that end": func(_ *rand.Rand, c *frameConn) []*frames.Segment {
			data, fin, rst := c.back(), c.segment(), c.back()
			data.Payload, fin.Flags, rst.Flags = []byte{1}, frames.FIN|frames.ACK, frames.RST
			return []*frames.Segment{data, fin, rst}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			f := newFrameTable(t, c)
			honest := f.conn(frames.IP{})
			honest.open(t, f.frameSwitch)
			most := 0
			for sent := 0; sent < packets; {
				for _, s := range attack(r, f.anybody(r)) {
					f.mustRun(t, fromLeft(s), s.Bytes())
					sent++
				}
				if sent%1000 < 5 {
					n := len(f.contents(t))
					most = max(most, n)
					if p := len(entries[fairqConnection](t, f.Pending)); n > share || p > int(c.pending) {
						t.Fatalf("%d connections, %d half-known after %d packets; at most %d and %d", n, p, sent, share, c.pending)
					}
				}
			}
			f.checkShares(t, len(f.contents(t)), 0)
			f.setGrant(t, 1, rowGrant)
			f.rewritten(t, "a connection that was there", honest.segment(), rowField, fairqPortCounts{})
			t.Logf("at most %d connections", most)

			// Behind the other port there is room, whatever the first has done.
			opposite := f.conn(frames.IP{})
			syn, synAck, ack := opposite.segment(), opposite.back(), opposite.segment()
			syn.Flags, syn.Seq, synAck.Flags, synAck.Seq = frames.SYN, 7000, frames.SYN|frames.ACK, 3000
			f.mustRun(t, 0, syn.Bytes())
			f.mustRun(t, 1, synAck.Bytes())
			f.mustRun(t, 0, ack.Bytes())
			f.checkShares(t, len(f.contents(t))-1, 1)
			f.forget(t)
			f.checkShares(t, 0, 0)
		})
	}
}

// anybody returns a connection of random hosts and ports, in some VLAN.
func (f *frameTable) anybody(r *rand.Rand) *frameConn {
	c := f.conn(frames.IP{})
	c.port = uint16(r.Uint32())
	v4 := func() netip.Addr {
		return netip.AddrFrom4([4]byte{10, byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())})
	}
	c.ip.From, c.ip.To = v4(), v4()
	if r.IntN(2) == 0 {
		c.ip.From, c.ip.To = address6(r), address6(r)
	}
	if r.IntN(4) == 0 {
		c.link.Tags = []frames.Tag{{TPID: frames.TypeVLAN, TCI: uint16(r.Uint32())}}
	}
	return c
}

func address6(r *rand.Rand) netip.Addr {
	a := [16]byte{0: 0xfd}
	binary.BigEndian.PutUint64(a[8:], r.Uint64())
	return netip.AddrFrom16(a)
}

// fromLeft returns the port that a segment leaves by.
func fromLeft(s *frames.Segment) int {
	if s.Src == leftMAC {
		return 1
	}
	return 0
}

// forget sweeps until connections that are not seen are removed.
func (s *frameSwitch) forget(t *testing.T) {
	t.Helper()
	const sweeps = 4
	s.forgetAfter(t, sweeps)
	for range sweeps + 1 {
		s.sweep(t)
	}
}

// forgetAfter sets how many sweeps a connection may be silent.
func (s *frameSwitch) forgetAfter(t *testing.T, sweeps uint32) {
	t.Helper()
	var c fairqControl
	if err := s.Controls.Lookup(uint32(0), &c); err != nil {
		t.Fatal(err)
	}
	c.IdleSweeps = sweeps
	if err := s.Controls.Put(uint32(0), c); err != nil {
		t.Fatal(err)
	}
}

func (s *frameSwitch) sweep(t *testing.T) {
	t.Helper()
	if _, err := s.controls(t).WeirFairqSweep.Run(&ebpf.RunOptions{Context: fairqSwept{Watched: 1}}); err != nil {
		t.Error(err)
	}
}
