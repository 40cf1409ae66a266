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

// FairQ at the ports of a simulated switch. Which flows count, what is granted, whose window an acknowledgement is held
// to, what is advertised and what is written into a window field are decided by the C of datapath/core, as in the
// kernel. Here packets are read and written, and connections are looked up: by number, where the kernel hashes addresses.
//
//	fairq.go         parameters; what a run reads of it
//	fairq_port.go    a port: its timer, and what packets did there
//	fairq_table.go   a switch's table of connections
//	fairq_packet.go  a packet: what it tells, and what is written into it
//	fairq_paths.go   equal paths: ACKs whose data takes another switch
//	fairq_tell.go    edge mode at a switch: ACKs that advertise a window
//	fairq_edge.go    edge mode at the ports to hosts: every ACK is held to what was advertised

// mostMSS is what Ethernet carries: 1500 bytes less 40 of headers. A larger option is not believed.
const mostMSS = 1460

// FairQ is `fairq` in the simulator.
func FairQ() Law { return Law{Check: checkFairQ, Put: putFairQ} }

// putFairQ puts FairQ on each switch in r.At: one table a switch, as data and its acknowledgements meet there.
func putFairQ(n *network.Network, r *experiment.Run, name string) (AtWork, error) {
	params, err := law.Params[fairq.Params](r.Params, name)
	if err != nil {
		return nil, err
	}
	work := fairQAtWork{}
	for _, at := range r.At {
		ports := n.SwitchPorts([]string{at})
		if len(ports) == 0 {
			continue
		}
		sw := newFairQSwitch(n.Queue, len(ports), &params)
		for _, p := range ports {
			at := params.At(r.Config.RTT, p.Rate, p.Buffer.Bytes())
			q := newFairQPort(sw, p, fairQLaw(at, &params), event.Time(at.Active)/(liveEpochs-1))
			add(p, q)
			work[p] = q
		}
	}
	if params.Edge { // behind the switch's own law, at a port that has both
		putEdge(n, r.Config.Graph, &params)
	}
	return work, nil
}

// checkFairQ says what of a run's FairQ the simulator cannot do.
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

// fairQLaw is what core is told of the law of a port.
func fairQLaw(at fairq.Port, p *fairq.Params) native.FairQConfig {
	c := native.FairQConfig{
		TargetBytes: at.Target, BufferBytes: at.Buffer, MSSMaxBytes: mostMSS, TickNs: uint32(at.Tick), PeriodNs: uint32(at.Period),
		FloorBytes: at.Floor, CapBytes: at.Cap,
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

// fairQAtWork is FairQ at all ports of a network that have it.
type fairQAtWork map[*network.Port]*fairQPort

// Sample is what FairQ holds of a port now.
func (w fairQAtWork) Sample(p *network.Port, out []law.Value) []law.Value {
	q := w[p]
	if q == nil {
		return out
	}
	return append(out, fairq.Sample(q.state.Law.Flows, q.state.Law.WindowQ8>>8, q.state.GrantQ8>>8)...)
}

// Tally adds up what FairQ did at all ports so far. Its timers are never late.
func (w fairQAtWork) Tally() law.Tally {
	t := law.Tally{}
	for _, q := range w {
		t[fairq.Acks] += q.rewritten + q.smaller + q.ungoverned + q.left
		t[fairq.Rewritten] += q.rewritten
		t[fairq.Told] += q.told
		t[fairq.Left] += q.left
		t[fairq.Seen] += q.seen
		t[fairq.Unknown] += q.unknown
		t[fairq.Opened] += q.opened
		t[fairq.Refused] += q.refused
	}
	return t
}

// Close stops its timers and frees what its ports have in C memory.
func (w fairQAtWork) Close() {
	for _, q := range w {
		q.sw.queue.Stop(&q.timer)
		q.sw.queue.Stop(&q.sw.sweep)
		q.sw.state.Close()
	}
}

// fairQOf finds FairQ among the laws of a port.
func fairQOf(p *network.Port) *fairQPort {
	for _, l := range p.Laws() {
		if q, ok := l.(*fairQPort); ok {
			return q
		}
	}
	return nil
}
