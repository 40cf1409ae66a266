package datapath

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/internal/frames"
)

// contents reads the flow table.
func (s *frameSwitch) contents(tb testing.TB) []fairqConnection {
	tb.Helper()
	return entries[fairqConnection](tb, s.Flows)
}

// entries reads a table of connections, in few system calls.
func entries[V any](tb testing.TB, m *ebpf.Map) (all []V) {
	tb.Helper()
	const chunk = 4096
	keys, values := make([]fairqFlowKey, chunk), make([]V, chunk)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		all = append(all, values[:n]...)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return all
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// checkLimits checks that no table, and no port's part of it, is larger than it may be.
func (r *round) checkLimits(t *testing.T) {
	t.Helper()
	flows, pending := r.contents(t), entries[fairqConnection](t, r.Pending)
	if n := len(flows); n > int(r.config.flows) {
		t.Errorf("%d connections in a table of %d", n, r.config.flows)
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

// armTimers has the ports' timers run, until the round ends.
func (r *round) armTimers(t *testing.T) {
	t.Helper()
	for port := range r.ports {
		if _, err := r.control.WeirFairqArm.Run(&ebpf.RunOptions{Context: fairqPortArg{Id: uint32(port)}}); err != nil {
			t.Fatal(err)
		}
	}
}

// Of flows.h: epochs that a seat counts for, and slots that they are kept in.
const flowsLive, flowsWheel = 4, 8

// finish stops the round's timers, and checks that the flows which ports count are those in the table.
func (r *round) finish(t *testing.T) {
	t.Helper()
	for port := range r.ports {
		if _, err := r.control.WeirFairqDisarm.Run(&ebpf.RunOptions{Context: fairqPortArg{Id: uint32(port)}}); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.workers) > 1 {
		return // while packets move seats the count may be one off, until the epoch passes
	}
	flows := r.contents(t)
	for port := range r.ports {
		p := r.port(t, port)
		var seats [flowsWheel]uint32
		registered := uint32(0)
		for i := range flows {
			for _, e := range flows[i].End {
				const epochs = 1<<48 - 1
				if e.Seat>>48 == uint64(port+1) && (p.Epoch-e.Seat)&epochs < flowsLive {
					seats[e.Seat%flowsWheel]++
				}
				if e.Registration == p.Generation && int(e.RegisteredAt) == port && e.Registration != 0 {
					registered++
				}
			}
		}
		for i := range uint64(flowsLive) {
			slot := (p.Epoch - i) % flowsWheel
			if seats[slot] != p.Wheel[slot] {
				t.Errorf("port %d counts %d flows of %d epochs ago; in the table are %d", port, int32(p.Wheel[slot]), i, seats[slot])
			}
		}
		if registered != p.Registered {
			t.Errorf("port %d has %d flows in its register; in the table are %d", port, p.Registered, registered)
		}
	}
}

// A SYN-ACK with data that answers nobody, from ever other ports: one forged packet each must not count
// as a flow, or a single host takes the share of all others.
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
