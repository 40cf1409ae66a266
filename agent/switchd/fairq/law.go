// Package fairq implements FairQ at a switch: its keys of the file, its parameters at a port, its kernel programs.
package fairq

import (
	"errors"
	"fmt"
	"time"

	"weir/agent/switchd"
	"weir/datapath/attach"
	kernel "weir/datapath/fairq"
	"weir/datapath/reading"
	fairqlaw "weir/law/fairq"
)

// Law is FairQ at a switch. Its keys are those of a file, or an experiment's parameters (*fairqlaw.Params) for all ports
// together and for each port.
type Law struct {
	Trace kernel.Tracer // records every call of the law, without pins; nil: none
	// Lease is how long flows stay limited after the last heartbeat. 0: 1 s.
	Lease time.Duration
}

// Own locks the pins of a switch.
func (l Law) Own(c *switchd.Common) (switchd.Running, error) {
	cfg, err := KernelConfig(c)
	if err != nil {
		return nil, err
	}
	cfg.Trace, cfg.Lease = l.Trace, l.Lease
	if c.Observe && cfg.Scale == kernel.ScaleUnify {
		cfg.Scale = kernel.ScaleLearn // unify would rewrite SYNs
	}
	o, err := kernel.Own(cfg)
	if err != nil {
		return nil, err
	}
	return &running{owner: o, lease: l.Lease}, nil
}

// Open reads what is pinned in dir.
func (Law) Open(dir string) (switchd.View, error) {
	v, err := kernel.Open(dir)
	if err != nil {
		return nil, err
	}
	return view{v}, nil
}

// view is what is pinned, with the ports' notes.
type view struct{ *kernel.View }

// Read reads the switch and all its ports. A port whose flows are all limited has no note.
func (v view) Read() (*reading.Switch, error) {
	s, err := v.View.Read()
	if err != nil {
		return nil, err
	}
	for i := range s.Ports {
		if p := &s.Ports[i]; p.Mode != reading.EnforceAll {
			if p.Note, err = v.Note(p.ID); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// Purge removes what is pinned in dir.
func (Law) Purge(dir string, before func() error) error { return kernel.Purge(dir, before) }

// CheckTaken returns an error if another switch has attached FairQ to a port.
func (Law) CheckTaken(dir string, ports ...attach.PortRef) error {
	return kernel.CheckTaken(dir, ports...)
}

// Rehearse has the kernel verify the programs.
func (Law) Rehearse() error { return kernel.Rehearse() }

// Memory returns the capacity of the tables in connections and their size in bytes.
func (Law) Memory(keys any, processors int) (connections int, bytes uint64, err error) {
	n := keys.(*allKeys).Flows
	bytes, err = kernel.Memory(uint32(n), processors)
	return n, bytes, err
}

// KernelConfig returns the programs' configuration for all ports.
func KernelConfig(c *switchd.Common) (cfg kernel.Config, err error) {
	switch k := c.Keys.(type) {
	case *allKeys:
		p := fairqlaw.Default()
		p.Count, p.Scale, p.UnifyShift, p.Shrink = k.Count, k.Scale, k.UnifyShift, k.Shrink
		p.Promises, p.Credits = k.Promises == on, k.Credits == on
		var errSigned, errVLANs error
		cfg, err = programsConfig(p)
		cfg.Signed, errSigned = signeds.parse("signed", k.Signed)
		cfg.IgnoreVLANs, errVLANs = vlans.parse("vlans", k.VLANs)
		cfg.Flows, cfg.Edge, err = uint32(k.Flows), k.edge(), errors.Join(err, errSigned, errVLANs)
	case *fairqlaw.Params:
		cfg, err = programsConfig(k)
	default:
		err = fmt.Errorf("fairq: keys are %T", c.Keys)
	}
	cfg.Scope, cfg.Pin, cfg.TakeOver, cfg.Renew, cfg.Version, cfg.Watch, cfg.Observe = c.Scope, c.Pin, c.TakeOver, c.Renew, c.Version, c.Watch, c.Observe
	return cfg, err
}

// programsConfig returns the programs' configuration for FairQ's parameters.
func programsConfig(p *fairqlaw.Params) (kernel.Config, error) {
	count, err1 := counts.parse("count", p.Count)
	scale, err2 := scales.parse("scale", p.Scale)
	shrink, err3 := shrinks.parse("shrink", p.Shrink)
	c := kernel.Config{Count: count, Scale: scale, Shrink: shrink}
	if scale == kernel.ScaleUnify {
		c.UnifyShift = uint8(p.UnifyShift)
	}
	switch {
	case p.Credits:
		c.Credit = kernel.CreditPaces
	case p.Promises:
		c.Credit = kernel.CreditPromises
	}
	if p.Edge {
		c.Edge = kernel.EdgeMode{Interval: p.EdgeInterval.Std(), Change: fairqlaw.EdgeChange, Lease: fairqlaw.EdgeLease.Std()}
	}
	return c, errors.Join(err1, err2, err3)
}

// running is FairQ at a switch. The embedded Attachment provides the other methods of switchd.Running.
type running struct {
	owner              *kernel.Owner
	lease              time.Duration
	*kernel.Attachment // nil before the first Attach
}

func (r *running) Attach(ports ...switchd.LawPort) (err error) {
	if r.Attachment == nil {
		r.Attachment, err = r.owner.Attach(kernelPorts(ports))
		return err
	}
	for _, p := range ports {
		k := kernelPort(p)
		if r.On(p.Name) {
			err = r.Configure(p.Name, k.Law)
		} else {
			err = r.Attachment.Attach(k)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *running) Heartbeat() error {
	if r.Attachment == nil {
		return r.owner.Heartbeat()
	}
	return r.Attachment.Heartbeat()
}

func (r *running) Change(c *switchd.Common) (undo func() error, err error) {
	cfg, err := KernelConfig(c)
	if err != nil {
		return nil, err
	}
	cfg.Lease = r.lease
	return r.Attachment.Change(cfg)
}

func (r *running) Stats(ports ...string) (out []reading.Stats, err error) {
	if len(ports) == 0 {
		return r.Attachment.Stats()
	}
	for _, port := range ports {
		s, err := r.PortStats(port)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func (r *running) EachFlow(do func(port string, f reading.Flow) bool) error {
	return r.Attachment.EachFlow(do)
}

func (r *running) Note(port, text string) error {
	if port == "" {
		return r.ClearNotes()
	}
	return r.Attachment.Note(port, text)
}

func (r *running) End(how switchd.Ending) error {
	switch {
	case r.Attachment == nil:
		return r.owner.Release()
	case how == switchd.Purge:
		return r.Close()
	case how == switchd.Detach:
		return r.Detach()
	}
	return r.Leave()
}

func kernelPort(p switchd.LawPort) kernel.Port {
	return kernel.Port{PortRef: p.PortRef, Law: p.Params.(params).Law}
}

func kernelPorts(ports []switchd.LawPort) []kernel.Port {
	out := make([]kernel.Port, len(ports))
	for i, p := range ports {
		out[i] = kernelPort(p)
	}
	return out
}
