package laws

import (
	"fmt"
	"math"

	"weir/datapath/native"
	"weir/experiment"
	"weir/law"
	"weir/law/mark"
	"weir/sim/event"
	"weir/sim/network"
)

// marker is `ecn` and `red`, with the answers of datapath/core/mark.h. mark_decide has no state: its answer follows
// from a packet's ECN field and from whether the backlog exceeds one threshold. So all answers are fetched in advance,
// because a call into C for each packet would be the most expensive part of a hop.
type marker struct {
	answers [4]answer // by ECN field
	packets bool      // threshold and queue are counted in packets; mark.h compares two numbers of one unit
}

// answer is the verdict for packets of one ECN field.
type answer struct {
	from         uint32 // least backlog that gets the verdict above
	under, above native.MarkVerdict
}

// newMark builds the answers with mark_decide, and finds by bisection the backlog where they change.
func newMark(c native.MarkConfig, packets bool) *marker {
	l := &marker{packets: packets}
	for ecn := range l.answers {
		ask := func(backlog uint32) native.MarkVerdict { return native.Mark(c, backlog, uint8(ecn)) }
		a := answer{from: math.MaxUint32, under: ask(0), above: ask(math.MaxUint32)}
		for low := uint32(0); low < a.from; {
			if mid := low + (a.from-low)/2; ask(mid) == a.under {
				low = mid + 1
			} else {
				a.from = mid
			}
		}
		l.answers[ecn] = a
	}
	return l
}

// verdict returns what mark_decide would return.
func (l *marker) verdict(backlog int64, ecn uint8) native.MarkVerdict {
	a := &l.answers[ecn%4]
	if backlog >= int64(a.from) {
		return a.above
	}
	return a.under
}

// Mark returns the law `ecn` and `red`.
func Mark() Law { return inC(Law{Put: putMark}) }

// putMark puts the law on each port of the switches, as the lab does. A threshold in packets counts packets here; the
// lab counts 1500 bytes for each.
func putMark(n *network.Network, r *experiment.Run, name string) (Attached, error) {
	params, err := law.Params[mark.Params](r.Params, name)
	if err != nil {
		return nil, err
	}
	c := native.MarkConfig{}
	if name == mark.RED {
		c.Action = 1
	}
	if params.NotECT == mark.Drop {
		c.NotECT = 1
	}
	return Quiet{}, markAt(n, r, name, c, params.Threshold)
}

// markAt is putMark with the given configuration and threshold.
func markAt(n *network.Network, r *experiment.Run, name string, c native.MarkConfig, threshold law.Limit) error {
	if threshold.N < 0 || threshold.N > math.MaxUint32 {
		return fmt.Errorf("law %s: threshold %v is out of range", name, threshold)
	}
	c.ThresholdBytes = uint32(threshold.N)
	l := newMark(c, threshold.Packets)
	for _, p := range n.SwitchPorts(r.At) {
		add(p, l)
	}
	return nil
}

// Packet marks, drops or passes a packet as mark_decide decides.
func (l *marker) Packet(p *network.Port, pk *network.Packet, _ event.Time) network.Verdict {
	backlog := p.Backlog()
	if l.packets {
		backlog = p.BacklogPackets()
	}
	switch l.verdict(backlog, pk.ECN()) {
	case native.MarkSetCE:
		pk.SetECN(network.CE)
	case native.MarkDropLaw, native.MarkDropNotECT:
		return network.Drop
	}
	return network.Pass
}
