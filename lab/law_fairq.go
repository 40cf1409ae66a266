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

// labMTU is the MTU of the lab's veth ports.
const labMTU = 1500

// FairQ is `fairq` in the lab.
func FairQ() Law { return RecordedFairQ(nil) }

// RecordedFairQ is FairQ with a record of every answer, for a differential run: record returns a recorder for each
// switch. The caller stops the recorders after the run. nil: no recording.
func RecordedFairQ(record func(node string) (*lawtrace.Recorder, error)) Law {
	return Law{
		Check: checkFairQ,
		Start: func(l *Lab, r *experiment.Run, name string) (Attached, error) { return startFairQ(l, r, name, record) },
	}
}

// attachedFairQ is FairQ on the switches of a lab.
type attachedFairQ struct {
	cancel     context.CancelFunc
	heartbeats chan error // the result of each instance's heartbeat
	running    []*fairq.Attachment
	shim       *shim.Shim
	edge       *edge.Edge
}

// Close releases all flows and detaches the programs.
func (w *attachedFairQ) Close() error {
	w.cancel()
	var errs []error
	for _, f := range w.running {
		errs = append(errs, <-w.heartbeats, f.Close())
	}
	if w.shim != nil {
		errs = append(errs, w.shim.Close())
	}
	if w.edge != nil {
		errs = append(errs, w.edge.Close())
	}
	return errors.Join(errs...)
}

// startFairQ attaches FairQ to the switches. Each switch has one instance, so that a flow's data and its
// acknowledgements use the same flow table of the switch.
func startFairQ(l *Lab, r *experiment.Run, name string, record func(node string) (*lawtrace.Recorder, error)) (Attached, error) {
	params, err := law.Params[fairqlaw.Params](r.Params, name)
	if err != nil {
		return nil, err
	}
	w := &attachedFairQ{heartbeats: make(chan error)}
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background())
	if err := w.start(ctx, l, r, &params, record); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *attachedFairQ) start(ctx context.Context, l *Lab, r *experiment.Run, params *fairqlaw.Params, record func(node string) (*lawtrace.Recorder, error)) (err error) {
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
		l.unmet.add("all switches", "fairq.idle", params.Idle.String(), fmt.Sprintf("the maximum is %v", fairq.MaxActive))
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
		go func() { w.heartbeats <- f.Run(ctx) }()
	}
	return nil
}

// on returns the instance at a port; nil: there is none.
func (w *attachedFairQ) on(port string) *fairq.Attachment {
	for _, f := range w.running {
		if f.On(port) {
			return f
		}
	}
	return nil
}

// Has reports whether FairQ is on the port.
func (w *attachedFairQ) Has(port string) bool { return w.on(port) != nil }

// Sample returns FairQ's current metrics of a port.
func (w *attachedFairQ) Sample(port string) ([]law.Value, error) {
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

// Tally returns the sum of FairQ's counters at all ports.
func (w *attachedFairQ) Tally() (law.Tally, error) {
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

// checkFairQ returns, before anything starts, what the switch program cannot do for a run's FairQ, or nil.
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

// fairQPorts returns the ports of one switch with the switch program's parameters for each, the same as `weir
// switch` sets.
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
