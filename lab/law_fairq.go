package lab

import (
	"context"
	"errors"
	"fmt"

	"weir/agent/switchd"
	switchfairq "weir/agent/switchd/fairq"
	"weir/datapath/fairq"
	"weir/datapath/fairq/edge"
	"weir/datapath/fairq/lawtrace"
	"weir/datapath/fairq/shim"
	"weir/experiment"
	"weir/law"
	fairqlaw "weir/law/fairq"
)

// Lab ports have the MTU of a veth.
const labMTU = 1500

// FairQ is `fairq` in the lab.
func FairQ() Law { return RecordedFairQ(nil) }

// RecordedFairQ is FairQ whose every answer is recorded, for a differential run: record gives a recorder for each switch.
// The caller stops them after the run. nil: none is recorded.
func RecordedFairQ(record func(node string) (*lawtrace.Recorder, error)) Law {
	return Law{
		Check: checkFairQ,
		Start: func(l *Lab, r *experiment.Run, name string) (AtWork, error) { return startFairQ(l, r, name, record) },
	}
}

// fairQAtWork is FairQ on the switches of a lab.
type fairQAtWork struct {
	cancel  context.CancelFunc
	beats   chan error // of each of running, when it ends
	running []*fairq.Attachment
	shim    *shim.Shim
	edge    *edge.Edge
}

// Close lets go of all flows and detaches the programs.
func (w *fairQAtWork) Close() error {
	w.cancel()
	var errs []error
	for _, f := range w.running {
		errs = append(errs, <-w.beats, f.Close())
	}
	if w.shim != nil {
		errs = append(errs, w.shim.Close())
	}
	if w.edge != nil {
		errs = append(errs, w.edge.Close())
	}
	return errors.Join(errs...)
}

// startFairQ puts FairQ on the switches: one instance each, for a flow's data and its acknowledgements
// meet in the flow table of the switch that both cross.
func startFairQ(l *Lab, r *experiment.Run, name string, record func(node string) (*lawtrace.Recorder, error)) (AtWork, error) {
	params, err := law.Params[fairqlaw.Params](r.Params, name)
	if err != nil {
		return nil, err
	}
	w := &fairQAtWork{beats: make(chan error)}
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background())
	if err := w.start(ctx, l, r, &params, record); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *fairQAtWork) start(ctx context.Context, l *Lab, r *experiment.Run, params *fairqlaw.Params, record func(node string) (*lawtrace.Recorder, error)) (err error) {
	if params.Scale == "shim" {
		if w.shim, err = shim.Attach(l.shimPorts(), shim.Config{}); err != nil {
			return err
		}
	}
	if params.Edge {
		if w.edge, err = edge.Attach(l.edgePorts(), edgeConfig(params)); err != nil {
			return err
		}
	}
	// A time_scale can ask for more.
	if params.Count == "handshake" && params.Idle.Std() > fairq.MaxActive {
		l.unmet.add("all switches", "fairq.idle", params.Idle.String(), fmt.Sprintf("%v is the longest that can be had", fairq.MaxActive))
	}
	for _, at := range r.At {
		ports, err := l.fairQPorts(at, &r.Config, params)
		if err != nil {
			return err
		}
		if len(ports) == 0 {
			continue
		}
		config, err := switchfairq.ProgramsConfig(params) // its own table: a closed loop closes 2000 connections a second
		if err != nil {
			return err
		}
		if record != nil {
			if config.Trace, err = record(at); err != nil {
				return err
			}
		}
		f, err := fairq.Attach(ports, config)
		if err != nil {
			return err
		}
		w.running = append(w.running, f)
		go func() { w.beats <- f.Run(ctx) }()
	}
	return nil
}

// on is the instance that has a port; nil: none.
func (w *fairQAtWork) on(port string) *fairq.Attachment {
	for _, f := range w.running {
		if f.On(port) {
			return f
		}
	}
	return nil
}

// Has reports whether FairQ is on the port.
func (w *fairQAtWork) Has(port string) bool { return w.on(port) != nil }

// Sample is what FairQ holds of a port now.
func (w *fairQAtWork) Sample(port string) ([]law.Value, error) {
	f := w.on(port)
	if f == nil {
		return nil, nil
	}
	p, err := f.PortStats(port)
	if err != nil {
		return nil, err
	}
	return fairqlaw.Sample(p.Flows, p.WindowBytes, p.GrantBytes), nil
}

// Tally adds up what FairQ did at all ports so far.
func (w *fairQAtWork) Tally() (law.Tally, error) {
	t := law.Tally{}
	for _, f := range w.running {
		ports, err := f.Stats()
		if err != nil {
			return nil, err
		}
		for i := range ports {
			p := &ports[i]
			t[fairqlaw.Acks] += p.Rewritten + p.Smaller + p.Ungoverned + p.Free + p.Untold
			t[fairqlaw.Rewritten] += p.Rewritten
			t[fairqlaw.Told] += p.Told
			t[fairqlaw.Left] += p.Untold
			t[fairqlaw.Refused] += p.TableFull
			t[fairqlaw.Opened] += p.Opened
			t[fairqlaw.Unknown] += p.Unknown
			t[fairqlaw.Seen] += p.Seen
			t[fairqlaw.Late] += p.SamplesByPacket
			t[fairqlaw.Samples] += p.Samples
		}
	}
	return t, nil
}

// checkFairQ says before anything starts what of a run's FairQ the switch program cannot do.
func checkFairQ(r *experiment.Run, name string) error {
	if err := fairq.Check(); err != nil {
		return err
	}
	params, err := law.Params[fairqlaw.Params](r.Params, name)
	if err != nil {
		return err
	}
	if err := params.Check(r.Config.Network(), fairqlaw.LabLimits()); err != nil {
		return fmt.Errorf("law %s, at 1/%g of the rates: %w", name, r.Scale, err)
	}
	return nil
}

// fairQPorts are the ports of one switch with what the switch program is told of each, as `weir switch` tells it.
func (l *Lab) fairQPorts(node string, cfg *experiment.Config, p *fairqlaw.Params) (out []fairq.Port, err error) {
	for _, port := range l.Ports() {
		if !port.OfSwitch || port.Node != node {
			continue
		}
		at, err := switchfairq.ProgramsAt(p, switchd.Site{Rate: port.Rate, Buffer: port.Buffer, RTT: cfg.RTT, MTU: labMTU})
		if err != nil {
			return nil, fmt.Errorf("port %s: %w", port.Name, err)
		}
		out = append(out, fairq.Port{PortRef: l.PortRef(port), Law: at})
	}
	return out, nil
}
