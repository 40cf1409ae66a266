//go:build cgo

package sim

import (
	"context"
	"flag"
	"strconv"
	"strings"
	"testing"

	"weir/cmd/weir/laws"
	"weir/law"
	"weir/sim/tcp"
)

var losses = flag.Int("losses", 1000, "TestLossRepair_Losses: until a buffer had no room for so many packets (make repair-losses: 1000000)")

// repairFile is experiments/sed/repair.yaml with a message of each sender every 25 ms.
const repairFile = `id: repair
duration: 5s
worlds: [sim]
seeds: [1]
topology: {kind: dumbbell, senders: 14, receivers: 1}
network: {rate: 100Mbit, rtt: 200us, buffer: 100KB}
guests: {cc: cubic, ecn: false, sack: true, delayed_ack: true, initial_window: 10, rto_min: 200ms}
traffic:
  - {name: messages, from: sender*, to: receiver1, pattern: burst, size: 10KB, every: 25ms}
schemes: [SCHEME]
measure: {ports: {bottleneck: "switch->receiver1"}}
`

// repairTotal is what runs of a scheme gave.
type repairTotal struct {
	repaired, inTime, dropped       int64 // packets
	timeouts, outOfOrder, delivered int64
	messages, done, slowest         int64
}

// add runs the scheme with a seed.
func (o *repairTotal) add(t *testing.T, scheme, seed string) {
	t.Helper()
	r := planned(t, strings.Replace(repairFile, "SCHEME", scheme, 1), "seeds=["+seed+"]")[0]
	w := &World{Laws: laws.Sim()}
	s, err := buildWith(r, w.Laws, networkOptions(r))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	onEnd := s.stack.OnEnd
	s.stack.OnEnd = func(e *tcp.Endpoint) {
		c := e.Counters()
		o.outOfOrder += c.OutOfOrder
		o.timeouts += c.Timeouts
		if onEnd != nil {
			onEnd(e)
		}
	}
	raw, err := w.carryOut(context.Background(), s, r, quiet{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.net.SwitchPorts([]string{"switch"}) {
		c := p.Counters()
		o.dropped += c.Tail.Packets + c.Law.Packets
	}
	for i := range raw.Flows {
		f := &raw.Flows[i]
		o.messages++
		o.delivered += f.Bytes
		if f.Done {
			o.done++
			o.slowest = max(o.slowest, int64(f.End-f.Start))
		}
	}
	for _, v := range raw.LawTotals {
		switch v.Metric {
		case law.Repairs:
			o.repaired += int64(v.Value)
		case law.InTime:
			o.inTime += int64(v.Value)
		}
	}
}

// Of the packets that a buffer has no room for, at least 95 % are back in the queue within the time of a full buffer and 2 ms. The
// messages take no longer and bring as much as with drop-tail, whose slowest wait for a probe or a timeout of 200 ms. Receivers see no
// segment out of order but those behind a loss.
func TestLossRepair_Losses(t *testing.T) {
	var tail, repair repairTotal
	for seed := 1; repair.repaired+repair.dropped < int64(*losses); seed++ {
		tail.add(t, "{name: droptail}", strconv.Itoa(seed))
		repair.add(t, "{name: repair, laws: [lossrepair], params: {park: 100KB}}", strconv.Itoa(seed))
	}
	t.Logf("drop-tail: %+v", tail)
	t.Logf("repair:    %+v", repair)
	if lost := repair.repaired + repair.dropped; repair.inTime*100 < 95*lost {
		t.Errorf("%d of %d back in time", repair.inTime, lost)
	}
	if tail.dropped == 0 || tail.outOfOrder == 0 || repair.timeouts > 0 || repair.outOfOrder > repair.dropped {
		t.Errorf("drop-tail: %d dropped, %d out of order; repair: %d timeouts, %d out of order, %d dropped", tail.dropped, tail.outOfOrder, repair.timeouts, repair.outOfOrder, repair.dropped)
	}
	if repair.delivered < tail.delivered || repair.done < tail.done || repair.slowest > tail.slowest/5 {
		t.Errorf("goodput: %+v, drop-tail %+v", repair, tail)
	}
}
