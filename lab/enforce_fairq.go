package lab

import (
	"context"
	"errors"
	"fmt"

	"weir/datapath/fairq"
	"weir/datapath/fairq/edge"
	"weir/datapath/fairq/shim"
	"weir/experiment"
)

// Lab ports have the MTU of a veth.
const labMTU = 1500

// startFairQ puts FairQ on the switches: one instance each, for a flow's data and its acknowledgements
// meet in the flow table of the switch that both cross.
func startFairQ(l *Lab, r *experiment.Run, law string) (func() error, error) {
	params, ok := r.Params[law].(experiment.FairQParams)
	if !ok {
		return nil, fmt.Errorf("law %s: parameters are %T", law, r.Params[law])
	}
	var running []*fairq.Attachment
	var shims *shim.Shim
	var edges *edge.Edge
	ctx, cancel := context.WithCancel(context.Background())
	beats := make(chan error)
	stop := func() error {
		cancel()
		var errs []error
		for _, f := range running {
			errs = append(errs, <-beats, f.Close())
		}
		if shims != nil {
			errs = append(errs, shims.Close())
		}
		if edges != nil {
			errs = append(errs, edges.Close())
		}
		return errors.Join(errs...)
	}
	if params.Scale == "shim" {
		var err error
		if shims, err = shim.Attach(l.shimPorts(), shim.Config{}); err != nil {
			return nil, errors.Join(err, stop())
		}
	}
	if params.Edge {
		var err error
		if edges, err = edge.Attach(l.edgePorts(), edgeConfig(&params)); err != nil {
			return nil, errors.Join(err, stop())
		}
	}
	// A time_scale can ask for more.
	if params.Count == "handshake" && params.Idle.Std() > fairq.MaxActive {
		l.unmet.add("all switches", "fairq.idle", params.Idle.String(), fmt.Sprintf("%v is the longest that can be had", fairq.MaxActive))
	}
	for _, at := range r.At {
		ports := l.fairQPorts(at, &r.Config, &params)
		if len(ports) == 0 {
			continue
		}
		config := fairQConfig(&params)
		if l.recorder != nil {
			var err error
			if config.Trace, err = l.recorder(at); err != nil {
				return nil, errors.Join(err, stop())
			}
		}
		f, err := fairq.Attach(ports, config)
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		running, l.fairqs = append(running, f), append(l.fairqs, f)
		go func() { beats <- f.Run(ctx) }()
	}
	return stop, nil
}

func fairQConfig(p *experiment.FairQParams) fairq.Config {
	c := fairq.Config{} // its own table: a closed loop closes 2000 connections a second
	switch p.Count {
	case "opening":
		c.Count = fairq.CountOpening
	case "handshake":
		c.Count = fairq.CountHandshake
	}
	if p.Shrink == "avoid" {
		c.Shrink = fairq.ShrinkAvoid
	}
	if p.Edge {
		c.Edge = fairq.EdgeMode{Interval: p.EdgeInterval.Std(), Change: experiment.FairQEdgeChange, Lease: experiment.FairQEdgeLease.Std()}
	}
	switch p.Scale {
	case "shim":
		c.Scale = fairq.ScaleShim
	case "unify":
		c.Scale, c.UnifyShift = fairq.ScaleUnify, uint8(p.UnifyShift)
	}
	return c
}

// checkFairQ says before anything starts what of a run's FairQ the switch program cannot do.
func checkFairQ(r *experiment.Run, law string) error {
	params, ok := r.Params[law].(experiment.FairQParams)
	if !ok {
		return fmt.Errorf("law %s: parameters are %T", law, r.Params[law])
	}
	if err := params.Check(&r.Config, experiment.FairQLab()); err != nil {
		return fmt.Errorf("law %s, at 1/%g of the rates: %w", law, r.Scale, err)
	}
	return nil
}

// fairQPorts are the ports of one switch with their laws.
func (l *Lab) fairQPorts(node string, cfg *experiment.Config, p *experiment.FairQParams) []fairq.Port {
	var out []fairq.Port
	for _, port := range l.Ports() {
		if !port.OfSwitch || port.Node != node {
			continue
		}
		out = append(out, fairq.Port{PortRef: l.PortRef(port), Law: fairQLaw(p.At(cfg.RTT, port.Rate, port.Buffer), p)})
	}
	return out
}

// fairQLaw is what the switch program is told of the law of a port.
func fairQLaw(at experiment.FairQPort, p *experiment.FairQParams) fairq.Law {
	l := fairq.Law{
		TargetBytes: at.Target, BufferBytes: at.Buffer, MTU: labMTU, Tick: at.Tick, Period: at.Period,
		FloorBytes: at.Floor, CapBytes: at.Cap, Active: at.Active, Idle: min(p.Idle.Std(), fairq.MaxActive),
	}
	if p.Paths > 1 {
		l.Paths, l.Undivided = uint16(p.Paths), p.Undivided
	}
	if p.Gain == "code" {
		l.Gain = fairq.GainOVS
	}
	if !p.Aggregate {
		l.SlowStart = fairq.SlowStartPerFlow
	}
	if p.FairSwitch {
		l.Variant = fairq.FairSwitch
	}
	return l
}
