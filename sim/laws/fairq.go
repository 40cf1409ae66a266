//go:build cgo

package laws

import (
	"errors"
	"fmt"
	"math"
	"time"

	"weir/datapath/native"
	"weir/experiment"
	"weir/experiment/result"
	"weir/law"
	"weir/sim/event"
	"weir/sim/network"
)

// FairQ at the ports of a simulated switch. The law and what it writes into a window field are the C of
// datapath/core; which flows count and whose window an acknowledgement is held to are the rules of the kernel's
// program (datapath/bpf), with a packet's connection number where that hashes addresses.
//
//	fairq.go         parameters; what a run reads of it
//	fairq_port.go    a port: its timer, its count of flows, its grant
//	fairq_table.go   a switch's table of connections
//	fairq_packet.go  a packet: what it tells, and what is written into it

const (
	// The bounds of struct fairq_config (core/fairq.h).
	mostPeriod = event.Second
	mostWindow = 1 << 30
	// leastActive is how long a flow counts after it last sent, at least (datapath.FairQLaw).
	leastActive = 10 * event.Millisecond
	// mostMSS is what Ethernet carries: 1500 bytes less 40 of headers. A larger option is not believed.
	mostMSS = 1460
)

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
			add(p, newFairQPort(sw, p, fairQLaw(r.Config.RTT, p.Rate, p.Buffer.Bytes(), &params), fairQEpoch(r.Config.RTT, p.Rate, p.Buffer.Bytes(), &params)))
		}
	}
	return nil
}

// checkFairQ says what of a run's FairQ the simulator cannot do.
func checkFairQ(r *experiment.Run, name string) error {
	params, ok := r.Params[name].(experiment.FairQParams)
	if !ok {
		return fmt.Errorf("law %s: parameters are %T", name, r.Params[name])
	}
	if err := checkFairQParams(&params); err != nil {
		return fmt.Errorf("law %s: %w", name, err)
	}
	if r.Config.Graph == nil {
		return nil
	}
	for _, l := range r.Config.Graph.Links {
		if l.Rate > 0 && l.Buffer.Bytes() > math.MaxUint32 {
			return fmt.Errorf("law %s between %s and %s: a buffer of %v: at most %v", name, l.A, l.B, l.Buffer, law.Bytes(math.MaxUint32))
		}
	}
	return nil
}

func checkFairQParams(p *experiment.FairQParams) error {
	switch {
	case p.Edge:
		return errors.New("edge mode is not in the simulator: run it in world lab, or without edge")
	case p.Paths > 1:
		return fmt.Errorf("paths: %d is not in the simulator, where acknowledgements whose data takes another switch pass as they are: run it in world lab, or with paths: 1", p.Paths)
	case event.Time(p.Interval) < event.Microsecond || event.Time(p.Interval) > mostPeriod/event.Time(max(1, p.Updates)):
		return fmt.Errorf("a sampling interval of %v and %d samples an update: from 1us on, and an update takes 1s at most", p.Interval, p.Updates)
	case p.MinWindow < 0 || p.MinWindow > mostWindow || p.MaxWindow < 0 || p.MaxWindow > mostWindow:
		return fmt.Errorf("windows of %v to %v: 0B to %v", p.MinWindow, p.MaxWindow, law.Bytes(mostWindow))
	}
	return nil
}

// fairQLaw configures the law of a port, as lab/enforce_fairq.go does: the target is a fraction of the buffer, and a
// flow is granted at most what the idle path and the target hold.
func fairQLaw(rtt law.Duration, rate law.Rate, buffer law.Bytes, p *experiment.FairQParams) native.FairQConfig {
	target := fairQTarget(buffer, p)
	c := native.FairQConfig{
		TargetBytes: target, BufferBytes: uint32(buffer), MSSMaxBytes: mostMSS,
		TickNs: uint32(p.Interval), PeriodNs: uint32(p.Interval) * uint32(p.Updates),
		FloorBytes: uint32(p.MinWindow), CapBytes: uint32(p.MaxWindow),
	}
	if c.CapBytes == 0 {
		c.CapBytes = uint32(min(float64(rate)/8*rtt.Std().Seconds(), mostWindow)) + target
	}
	if p.Gain == "code" {
		c.Gain = native.GainOVS
	}
	if !p.Aggregate {
		c.SlowStart = native.SlowStartPerFlow
	}
	return c
}

func fairQTarget(buffer law.Bytes, p *experiment.FairQParams) uint32 {
	return max(1, uint32(float64(buffer)*p.TargetFraction))
}

// fairQEpoch is a third of the time that a flow counts after it last sent: four round trips with the queue at its
// target, 10 ms at least.
func fairQEpoch(rtt law.Duration, rate law.Rate, buffer law.Bytes, p *experiment.FairQParams) event.Time {
	drain := time.Duration(float64(fairQTarget(buffer, p)) * 8 / float64(rate) * float64(time.Second))
	return max(event.Time(4*(rtt.Std()+drain)), leastActive) / (liveEpochs - 1)
}

// ---- what a run reads ----

// FairQCounts is what FairQ did at all ports of a network so far.
type FairQCounts struct {
	Acks      uint64 // of connections that it knows
	Rewritten uint64 // of them, to a smaller window
	Seen      uint64 // packets
	Unknown   uint64 // acknowledgements of connections that it does not know
	Opened    uint64 // connections that came into a table
	Refused   uint64 // attempts to, for which there was no room
}

// CountFairQ adds up what FairQ did; false: no port has it.
func CountFairQ(n *network.Network) (c FairQCounts, has bool) {
	for _, p := range n.Ports {
		q := fairQOf(p.Law())
		if q == nil {
			continue
		}
		has = true
		c.Acks += q.rewritten + q.smaller + q.ungoverned
		c.Rewritten += q.rewritten
		c.Seen += q.seen
		c.Unknown += q.unknown
		c.Opened += q.opened
		c.Refused += q.refused
	}
	return c, has
}

// SampleFairQ is what FairQ holds of a port now; false: the port has no FairQ.
func SampleFairQ(p *network.Port) (result.LawSample, bool) {
	q := fairQOf(p.Law())
	if q == nil {
		return result.LawSample{}, false
	}
	return result.LawSample{Port: p.Name, Flows: q.law.Flows(), Window: q.law.WindowQ8() >> 8, Grant: q.grantQ8 >> 8}, true
}

// fairQOf finds FairQ among the laws of a port.
func fairQOf(l network.Law) *fairQPort {
	switch l := l.(type) {
	case *fairQPort:
		return l
	case both:
		if q := fairQOf(l.first); q != nil {
			return q
		}
		return fairQOf(l.second)
	}
	return nil
}

// Close takes all laws off the ports and frees what they have in C memory.
func Close(n *network.Network) {
	for _, p := range n.Ports {
		if q := fairQOf(p.Law()); q != nil {
			n.Queue.Stop(&q.timer)
			n.Queue.Stop(&q.sw.sweep)
			q.law.Close()
		}
		p.SetLaw(nil)
	}
}
