package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/experiment"
	"weir/law"
	"weir/sim/event"
	"weir/sim/network"
)

// probeTime is far longer than the RTT of any network that network.Build accepts.
const probeTime = 10_000 * event.Second

// probe is a packet that goes to a host and back, as the lab's ping-pong of one byte over TCP.
type probe struct {
	net      *network.Network
	from, to network.NodeID
	answered event.Time
}

var errNoAnswer = errors.New("no answer came back")

// roundTrip sends the probe through the idle network, and returns its RTT.
func (p *probe) roundTrip() (event.Time, error) {
	before := p.net.Sink
	p.net.Sink = p
	defer func() { p.net.Sink = before }()
	begin := p.net.Queue.Now()
	p.answered = -1
	p.send(p.from, p.to)
	p.net.Queue.Run(begin + probeTime)
	if p.answered < 0 {
		return 0, errNoAnswer
	}
	return p.answered - begin, nil
}

func (p *probe) send(from, to network.NodeID) {
	const port = 7 // echo
	pk := p.net.NewPacket()
	pk.SetSrc(from)
	pk.SetDst(to)
	pk.SetSrcPort(port)
	pk.SetDstPort(port)
	pk.SetProto(network.TCP)
	pk.SetHash(network.FlowHash(from, to, port, port, network.TCP))
	pk.SetFlags(network.ACK | network.PSH)
	pk.SetPayload(1)
	pk.SetBytes(network.HeaderBytes + 1)
	p.net.Send(from, pk)
}

// Deliver implements network.Sink.
func (p *probe) Deliver(host network.NodeID, pk *network.Packet, now event.Time) {
	p.net.Free(pk)
	if host == p.to {
		p.send(p.to, p.from)
		return
	}
	p.answered = now
	p.net.Queue.Halt()
}

// longestRoundTrip returns the largest RTT between the ends of the first pair of every item, as the lab does.
func longestRoundTrip(n *network.Network, cfg *experiment.Config) (event.Time, error) {
	longest := event.Time(0)
	for i := range cfg.Items {
		if len(cfg.Items[i].Pairs) == 0 {
			continue
		}
		pair := cfg.Items[i].Pairs[0]
		from, ok1 := n.Node(pair.Src)
		to, ok2 := n.Node(pair.Dst)
		if !ok1 || !ok2 {
			return 0, fmt.Errorf("RTT %s to %s: there are no such hosts", pair.Src, pair.Dst)
		}
		rtt, err := (&probe{net: n, from: from, to: to}).roundTrip()
		if err != nil {
			return 0, fmt.Errorf("RTT %s to %s: %w", pair.Src, pair.Dst, err)
		}
		longest = max(longest, rtt)
	}
	return longest, nil
}

// AtRTT returns a run as r whose links have other delays, so that its idle RTT is rtt, and the RTT that results.
// Rounding leaves nanoseconds, and if the lines alone take longer, the delays are 0. Delays keep their proportions. The
// traffic stays as it is: Config.RTT, which bounds the jitter of starts, does not change.
func AtRTT(r *experiment.Run, rtt time.Duration) (*experiment.Run, time.Duration, error) {
	o := networkOptions(r)
	now, _, err := idle(&r.Config, o)
	if err != nil {
		return nil, 0, err
	}
	out, g := *r, *r.Config.Graph
	g.Links = slices.Clone(g.Links)
	out.Config.Graph = &g
	for i := range g.Links {
		g.Links[i].Delay = 0
	}
	lines, _, err := idle(&out.Config, o)
	if err != nil || now <= lines || event.Time(rtt) <= lines { // there is no delay to scale, or none is needed
		return &out, time.Duration(lines), err
	}
	for i := range g.Links {
		d := int64(r.Config.Graph.Links[i].Delay)
		g.Links[i].Delay = law.Duration(mulDiv(d, int64(rtt)-int64(lines), int64(now-lines)))
	}
	got, _, err := idle(&out.Config, o)
	return &out, time.Duration(got), err
}

// idle returns the RTT of a network without laws, and how long its measurement took. A law would take the probe for a
// flow, which never ends.
func idle(cfg *experiment.Config, o network.Options) (rtt, took event.Time, err error) {
	n, err := network.Build(event.NewQueue(), cfg, o)
	if err != nil {
		return 0, 0, fmt.Errorf("network: %w", err)
	}
	rtt, err = longestRoundTrip(n, cfg)
	return rtt, n.Queue.Now(), err
}
