package sim

import (
	"testing"

	"weir/experiment"
	"weir/sim/event"
	"weir/sim/network"
)

// The frames of the baseline: a full segment with timestamps, and its acknowledgement.
const (
	bareData = network.HeaderBytes + 12 + 1448
	bareACK  = network.HeaderBytes + 12
)

// bareWindow is the number of data packets in flight for each flow of an experiment in the baseline: so few that
// buffers do not overflow.
const bareWindow = 2

// bare is the baseline: the cost of engine and network for the packets of a run, with a transport that does nothing.
// Each flow has a window of data packets in flight. Its receiver answers every n-th of them with a packet without
// payload, for which the sender sends n more. Dropped packets are sent again at once.
type bare struct {
	net   *network.Network
	flows []bareFlow
	every int32
	data  int64 // packets that arrived
	end   int64 // halt after this many; 0: never
	again int64 // packets that were dropped
}

type bareFlow struct {
	ends    [2]network.NodeID // from, to
	hash    [2]uint32         // of data, of answers
	arrived int32             // since the last answer
}

// newBare sets the baseline as the transport of a network.
func newBare(net *network.Network, every int32) *bare {
	b := &bare{net: net, every: every}
	net.Sink = b
	net.OnDrop = func(_ *network.Port, pk *network.Packet, _ network.DropReason, _ event.Time) {
		b.again++
		b.send(pk.Conn(), pk.ToAcceptor())
	}
	return b
}

// add adds a flow.
func (b *bare) add(from, to network.NodeID) {
	data, answer := uint16(10240+len(b.flows)%50000), uint16(5001)
	b.flows = append(b.flows, bareFlow{
		ends: [2]network.NodeID{from, to},
		hash: [2]uint32{network.FlowHash(from, to, data, answer, network.TCP), network.FlowHash(to, from, answer, data, network.TCP)},
	})
}

// begin fills all windows.
func (b *bare) begin(window int64) {
	for i := range b.flows {
		for range window {
			b.send(int32(i), true)
		}
	}
}

func (b *bare) send(flow int32, data bool) {
	f := &b.flows[flow]
	pk := b.net.NewPacket()
	pk.SetConn(flow)
	pk.SetToAcceptor(data)
	pk.SetProto(network.TCP)
	from, to := f.ends[0], f.ends[1]
	pk.SetBytes(bareACK)
	pk.SetHash(f.hash[1])
	if data {
		pk.SetPayload(1448)
		pk.SetBytes(bareData)
		pk.SetHash(f.hash[0])
	} else {
		from, to = to, from
	}
	pk.SetSrc(from)
	pk.SetDst(to)
	b.net.Send(from, pk)
}

// Deliver implements network.Sink.
func (b *bare) Deliver(_ network.NodeID, pk *network.Packet, _ event.Time) {
	flow, data := pk.Conn(), pk.ToAcceptor()
	b.net.Free(pk)
	if !data {
		for range b.every {
			b.send(flow, true)
		}
		return
	}
	if b.data++; b.data == b.end {
		b.net.Queue.Halt()
	}
	f := &b.flows[flow]
	if f.arrived++; f.arrived == b.every {
		f.arrived = 0
		b.send(flow, false)
	}
}

// bareOf builds the baseline of a run: its network, and a flow for each of its long ones.
func bareOf(t testing.TB, r *experiment.Run, every int32) *bare {
	t.Helper()
	net, err := network.Build(event.NewQueue(), &r.Config, networkOptions(r))
	if err != nil {
		t.Fatal(err)
	}
	b := newBare(net, every)
	for i := range r.Config.Items {
		it := &r.Config.Items[i]
		if it.Size > 0 || it.CDF != "" {
			continue
		}
		for _, p := range it.Pairs {
			from, ok1 := net.Node(p.Src)
			to, ok2 := net.Node(p.Dst)
			if !ok1 || !ok2 {
				t.Fatalf("there is no host %s or %s", p.Src, p.Dst)
			}
			for range max(1, it.Count) {
				b.add(from, to)
			}
		}
	}
	if len(b.flows) == 0 {
		t.Fatalf("%s has no long flow", r.Experiment)
	}
	return b
}

// timeBare times that many data packets of a baseline.
func timeBare(t testing.TB, b *bare, packets int64) spent {
	t.Helper()
	b.end = packets
	b.begin(max(bareWindow, int64(b.every)))
	out := stopwatch(func() { b.net.Queue.Run(event.Time(1) << 60) })
	if b.data != packets || b.again > packets/20 {
		t.Fatalf("the baseline moved %d packets of %d, and dropped %d: it is of something else", b.data, packets, b.again)
	}
	return out
}
