package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	switchfairq "weir/agent/switchd/fairq"
	"weir/datapath/fairq"
	"weir/datapath/fairq/edge"
	"weir/datapath/fairq/lawtrace"
	"weir/datapath/fairq/shim"
	"weir/experiment"
	"weir/law"
	fairqlaw "weir/law/fairq"
)

// labLease is the lease of FairQ's switch programs in the lab. A lease protects flows from the end of the process. The
// lab's programs are not pinned, so they end with its process and need no lease. With the lease of a switch, 1 s, a
// machine that delays heartbeats would release flows in the middle of a run.
const labLease = time.Hour

// FairQ is `fairq` in the lab.
func FairQ() Law { return RecordedFairQ(nil) }

// RecordedFairQ is FairQ with a record of every answer, for a differential run: record returns a recorder for each
// switch. The caller stops the recorders after the run. nil: no recording.
func RecordedFairQ(record func(node string) (*lawtrace.Recorder, error)) Law {
	return Law{
		Check: checkFairQ, Hardware: fairQHardware,
		Start: func(_ context.Context, l *Lab, r *experiment.Run, name string) (Attached, error) {
			return startFairQ(l, r, name, record)
		},
	}
}

// attachedFairQ is FairQ on the switches of a lab.
type attachedFairQ struct {
	switches attachedSwitches
	shim     *shim.Shim
	edge     *edge.Edge
}

// Close releases all flows and detaches the programs.
func (w *attachedFairQ) Close() error {
	errs := []error{w.switches.close()}
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
	w := &attachedFairQ{}
	if err := w.start(l, r, &params, record); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *attachedFairQ) start(l *Lab, r *experiment.Run, params *fairqlaw.Params, record func(node string) (*lawtrace.Recorder, error)) (err error) {
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
		of := switchfairq.Law{Lease: labLease}
		if record != nil && l.hasSwitchPort(at) {
			if of.Trace, err = record(at); err != nil {
				return err
			}
		}
		// Each switch has its own table: a closed loop closes 2000 connections a second.
		a, err := l.attachSwitch(at, r.Config.RTT, of, params)
		if err != nil {
			return err
		}
		if a != nil {
			w.switches = append(w.switches, a)
		}
	}
	return nil
}

// Has reports whether FairQ is on the port.
func (w *attachedFairQ) Has(port string) bool { return w.switches.on(port) != nil }

// Sample returns FairQ's current metrics of a port.
func (w *attachedFairQ) Sample(port string) ([]law.Value, error) {
	a := w.switches.on(port)
	if a == nil {
		return nil, nil
	}
	p, err := a.Stats(port)
	if err != nil {
		return nil, err
	}
	return fairqlaw.Sample(p[0].Flows, p[0].WindowBytes, p[0].GrantBytes), nil
}

// Tally returns the sum of FairQ's counters at all ports.
func (w *attachedFairQ) Tally() (law.Tally, error) {
	t := law.Tally{}
	for _, a := range w.switches {
		ports, err := a.Stats()
		if err != nil {
			return nil, err
		}
		for i := range ports {
			p := &ports[i]
			t[fairqlaw.Acks] += p.Rewritten + p.Smaller + p.Ungoverned + p.Free + p.LeftToEdge
			t[fairqlaw.Rewritten] += p.Rewritten
			t[fairqlaw.Advertised] += p.Advertised
			t[fairqlaw.Left] += p.LeftToEdge
			t[fairqlaw.Refused] += p.TableFull
			t[fairqlaw.Opened] += p.Opened
			t[fairqlaw.Unknown] += p.Unknown
			t[fairqlaw.Seen] += p.Seen
			t[fairqlaw.Late] += p.SamplesByPacket
			t[fairqlaw.Samples] += p.Samples
			if p.Repairs != nil {
				countRepairs(t, p.Repairs)
			}
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
