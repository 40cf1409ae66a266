//go:build cgo

package sim

import (
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/laws"
	"weir/experiment/result"
	"weir/law"
	"weir/sim/event"
	"weir/sim/network"
)

// flood is a host that sends packets at even times, each of a new connection.
type flood struct {
	ev       event.Event
	net      *network.Network
	from, to network.NodeID
	every    event.Time
	proto    uint8
	sent     int32
}

// firstOfFlood is a number of a connection that the simulator's TCP does not have.
const firstOfFlood = 1 << 20

// Happen sends a packet: a SYN, or a datagram of its length.
func (f *flood) Happen(ev *event.Event, now event.Time) {
	pk := f.net.NewPacket()
	pk.SetConn(firstOfFlood + f.sent)
	pk.SetEnds(f.from, f.to, uint16(f.sent), uint16(f.sent>>16))
	pk.SetProto(f.proto)
	pk.SetHash(network.FlowHash(f.from, f.to, pk.SrcPort(), pk.DstPort(), f.proto))
	pk.SetBytes(network.HeaderBytes + 20)
	pk.SetToAcceptor(true)
	if f.proto == network.TCP {
		pk.SetFlags(network.SYN)
		pk.SetSeq(uint32(f.sent) * 7919)
		pk.SetWindow(65_535)
		pk.SetMSS(1460)
	}
	f.net.Send(f.from, pk)
	f.sent++
	f.net.Queue.Set(ev, now+f.every)
}

// flooded runs a file while a host sends 200,000 packets of a protocol a second to receiver1; proto 0: it does not. It returns the counts of
// the first law, too.
func flooded(t *testing.T, text, from string, proto uint8) (*result.Raw, law.Tally) {
	t.Helper()
	r := planned(t, text)[0]
	s, err := build(r)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if proto != 0 {
		f := &flood{net: s.net, every: event.Second / 200_000, proto: proto}
		f.from, _ = s.net.Node(from)
		f.to, _ = s.net.Node("receiver1")
		f.ev.Init(f)
		s.queue.Set(&f.ev, s.queue.Now()+20*event.Millisecond)
	}
	raw, err := (&World{Laws: laws.Sim()}).carryOut(t.Context(), s, r, quiet{})
	if err != nil {
		t.Fatal(err)
	}
	return raw, s.laws.Tallies()[0]
}

const siccFloodFile = `id: flooded
duration: 1s
seeds: [1]
worlds: [sim]
topology: {kind: dumbbell, senders: 5, receivers: 1, hypervisors: true}
network: {rate: 10Gbit, rtt: 100us, buffer: 125KB}
guests: {cc: reno, sack: false, delayed_ack: false, initial_window: 10, rto_min: 200ms, initial_rto: 200ms}
traffic:
  - {name: others, from: "sender1..4", to: receiver1, pattern: burst, size: 100KB, start: 100ms, every: 10ms, epochs: 80, gap: 500us}
schemes: [{name: sicc, params: {interval: 1ms, off_rule: RULE, source_share: SHARE}}]
measure: {ports: {bottleneck: "switch->receiver1"}}
`

// A VM sends 200,000 SYNs a second to a host. The flows of the others to the same host take as long as without, and as next to
// datagrams of the same size. As the paper counts (source_share: 0) the SYNs are an incast without end: the others have a segment
// in flight. With shares no host gets a grant at all.
func TestSICC_OthersUnderAFloodOfSYNs(t *testing.T) {
	mean := func(raw *result.Raw) time.Duration {
		sum := time.Duration(0)
		for i := range raw.Flows {
			if !raw.Flows[i].Done {
				t.Fatalf("flow %d did not end", i)
			}
			sum += raw.Flows[i].FCT()
		}
		return sum / time.Duration(len(raw.Flows))
	}
	for _, rule := range []string{"or", "and"} {
		of := func(share string, proto uint8) (time.Duration, law.Tally) {
			raw, counts := flooded(t, strings.NewReplacer("RULE", rule, "SHARE", share).Replace(siccFloodFile), "sender5", proto)
			return mean(raw), counts
		}
		none, _ := of("0.5", 0)
		datagrams, _ := of("0.5", network.UDP)
		SYNs, shares := of("0.5", network.TCP)
		paper, all := of("0", network.TCP)
		t.Logf("off_rule %s: mean %v, next to datagrams %v, next to SYNs %v, as the paper counts %v", rule, none, datagrams, SYNs, paper)
		if SYNs > none*11/10 || SYNs > datagrams*11/10 {
			t.Errorf("off_rule %s: flows take %v next to SYNs, %v without, %v next to datagrams: want 10 %% more at most", rule, SYNs, none, datagrams)
		}
		if shares["grants"] != 0 || shares["acks_limited"] != 0 || all["grants"] == 0 || all["acks_limited"] == 0 {
			t.Errorf("off_rule %s: counts next to SYNs %v, as the paper counts %v: want no grant, and grants", rule, shares, all)
		}
		if paper < none*2 {
			t.Errorf("off_rule %s: as the paper counts they take %v, without SYNs %v: this test shows no harm", rule, paper, none)
		}
	}
}
