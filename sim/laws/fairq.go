//go:build cgo

package laws

import (
	"fmt"

	"weir/datapath/native"
	"weir/experiment"
	"weir/law"
	"weir/law/fairq"
	"weir/sim/event"
	"weir/sim/network"
)

// FairQ at the ports of a simulated switch. The C of datapath/core makes all decisions, as in the kernel: which flows
// count, the grant, which port limits an acknowledgement, what is advertised, and the window field that is written. The
// code here reads and writes packets, and looks up connections: by number, where the kernel hashes addresses.
//
//	fairq.go            parameters; what a run reads of it
//	fairq_port.go       a port: its timer, and what packets did there
//	fairq_table.go      a switch's table of connections
//	fairq_packet.go     a packet: what is read from it, and what is written into it
//	fairq_paths.go      equal paths: ACKs whose data takes another switch
//	fairq_advertise.go  edge mode at a switch: ACKs that advertise a window
//	fairq_edge.go       edge mode at the ports to hosts: every ACK is limited to the advertised window

// mostMSS is the largest MSS on Ethernet: 1500 bytes less 40 of headers. A larger option counts as this one.
const mostMSS = 1460

// FairQ returns the law `fairq`.
func FairQ() Law { return Law{Check: checkFairQ, Put: putFairQ} }

// putFairQ puts FairQ on each switch in r.At. The ports of a switch share one table, because data and its
// acknowledgements meet there.
func putFairQ(n *network.Network, r *experiment.Run, name string) (Attached, error) {
	params, err := law.Params[fairq.Params](r.Params, name)
	if err != nil {
		return nil, err
	}
	work := fairQPorts{}
	for _, at := range r.At {
		ports := n.SwitchPorts([]string{at})
		if len(ports) == 0 {
			continue
		}
		sw := newFairQSwitch(n.Queue, len(ports), &params)
		for _, p := range ports {
			at := params.At(r.Config.RTT, p.Rate, p.Buffer.Bytes())
			q := newFairQPort(sw, p, fairQLaw(at, &params), event.Time(at.Active)/(activeEpochs-1), at.Pipe)
			q.credit(n, at, sw.credit)
			add(p, q)
			work[p] = q
		}
	}
	if params.Edge { // after the switch's own law, at a port that has both
		putEdge(n, r.Config.Graph, &params)
	}
	return work, nil
}

// checkFairQ returns an error if the simulator cannot run the run's FairQ.
func checkFairQ(r *experiment.Run, name string) error {
	params, err := law.Params[fairq.Params](r.Params, name)
	if err != nil {
		return err
	}
	if err := params.Check(r.Config.Network(), fairq.SimLimits()); err != nil {
		return fmt.Errorf("law %s: %w", name, err)
	}
	return nil
}

// fairQLaw returns core's configuration for the law of a port.
func fairQLaw(at fairq.Port, p *fairq.Params) native.FairQConfig {
	c := native.FairQConfig{
		TargetBytes: at.Target, BufferBytes: at.Buffer, MSSMaxBytes: mostMSS, TickNs: uint32(at.Tick), PeriodNs: uint32(at.Period),
		FloorBytes: at.Floor, CapBytes: at.Cap, StartBytes: at.Start,
	}
	if p.Gain == "code" {
		c.Gain = native.GainOVS
	}
	if !p.Aggregate {
		c.SlowStart = native.SlowStartPerFlow
	}
	if p.FairSwitch {
		c.Variant = native.VariantFairSwitch
	}
	return c
}

// ---- what a run reads ----

// fairQPorts is FairQ at all ports of a network that have it.
type fairQPorts map[*network.Port]*fairQPort

// Sample appends FairQ's values of a port.
func (w fairQPorts) Sample(p *network.Port, out []law.Value) []law.Value {
	q := w[p]
	if q == nil {
		return out
	}
	return append(out, fairq.Sample(q.state.Law.Flows, q.state.Law.WindowQ8>>8, q.state.GrantQ8>>8)...)
}

// Tally adds up what FairQ did at all ports. The simulator's timers are never late.
func (w fairQPorts) Tally() law.Tally {
	t := law.Tally{}
	for _, q := range w {
		t[fairq.Acks] += q.rewritten + q.smaller + q.ungoverned + q.left
		t[fairq.Rewritten] += q.rewritten
		t[fairq.Advertised] += q.advertised
		t[fairq.Left] += q.left
		t[fairq.Seen] += q.seen
		t[fairq.Unknown] += q.unknown
		t[fairq.Opened] += q.opened
		t[fairq.Refused] += q.refused
		t[fairq.Samples] += q.ticks
		if q.credits != nil && q.credits.repair != nil {
			q.credits.repair.count(t)
		}
	}
	return t
}

// Close stops the timers and frees the C memory of the ports.
func (w fairQPorts) Close() {
	for _, q := range w {
		q.sw.queue.Stop(&q.timer)
		if q.credits != nil {
			q.sw.queue.Stop(&q.credits.leave)
			q.sw.queue.Stop(&q.credits.step)
			if q.credits.repair != nil {
				q.sw.queue.Stop(&q.credits.repair.back)
			}
		}
		q.sw.queue.Stop(&q.sw.sweep)
		q.sw.state.Close()
	}
}

// fairQOf returns the FairQ among the laws of a port, or nil.
func fairQOf(p *network.Port) *fairQPort {
	for _, l := range p.Laws() {
		if q, ok := l.(*fairQPort); ok {
			return q
		}
	}
	return nil
}
