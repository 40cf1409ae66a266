//go:build cgo

package laws

import (
	"fmt"

	"weir/datapath/native"
	"weir/experiment"
	"weir/experiment/result"
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

// putFairQ puts FairQ on each switch in r.At: one table a switch, as data and its acknowledgements meet there.
func putFairQ(n *network.Network, r *experiment.Run, name string) error {
	params, ok := r.Params[name].(experiment.FairQParams)
	if !ok {
		return fmt.Errorf("law %s: parameters are %T", name, r.Params[name])
	}
	for _, at := range r.At {
		ports := n.SwitchPorts([]string{at})
		if len(ports) == 0 {
			continue
		}
		sw := newFairQSwitch(n.Queue, len(ports), &params)
		for _, p := range ports {
			at := params.At(r.Config.RTT, p.Rate, p.Buffer.Bytes())
			add(p, newFairQPort(sw, p, fairQLaw(at, &params), event.Time(at.Active)/(liveEpochs-1)))
		}
	}
	if params.Edge { // behind the switch's own law, at a port that has both
		putEdge(n, r.Config.Graph, &params)
	}
	return nil
}

// checkFairQ says what of a run's FairQ the simulator cannot do.
func checkFairQ(r *experiment.Run, name string) error {
	params, ok := r.Params[name].(experiment.FairQParams)
	if !ok {
		return fmt.Errorf("law %s: parameters are %T", name, r.Params[name])
	}
	if err := params.Check(&r.Config, experiment.FairQSim()); err != nil {
		return fmt.Errorf("law %s: %w", name, err)
	}
	return nil
}

// fairQLaw is what core is told of the law of a port.
func fairQLaw(at experiment.FairQPort, p *experiment.FairQParams) native.FairQConfig {
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

// CountFairQ adds up what FairQ did at all ports of a network so far; false: no port has it. Its timers are never late.
func CountFairQ(n *network.Network) (t experiment.FairQTally, has bool) {
	for _, p := range n.Ports {
		q := fairQOf(p)
		if q == nil {
			continue
		}
		has = true
		t.Acks.All += q.rewritten + q.smaller + q.ungoverned + q.left
		t.Acks.Rewritten += q.rewritten
		t.Acks.Told += q.told
		t.Acks.Left += q.left
		t.Seen += q.seen
		t.Unknown += q.unknown
		t.Opened += q.opened
		t.Refused += q.refused
	}
	return t, has
}

// SampleFairQ is what FairQ holds of a port now; false: the port has no FairQ.
func SampleFairQ(p *network.Port) (result.LawSample, bool) {
	q := fairQOf(p)
	if q == nil {
		return result.LawSample{}, false
	}
	return result.LawSample{Port: p.Name, Flows: q.state.Law.Flows, Window: q.state.Law.WindowQ8 >> 8, Grant: q.state.GrantQ8 >> 8}, true
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

// Close takes all laws off the ports and hosts and frees what they have in C memory.
func Close(n *network.Network) {
	for _, p := range n.Ports {
		if q := fairQOf(p); q != nil {
			n.Queue.Stop(&q.timer)
			n.Queue.Stop(&q.sw.sweep)
			q.sw.state.Close()
		}
		p.SetLaws()
	}
	n.SetGuards()
}
