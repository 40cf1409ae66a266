// Package fairq implements FairQ at a switch: its keys of the file, its parameters at a port, its kernel programs.
package fairq

import (
	"errors"
	"fmt"

	"weir/agent/switchd"
	"weir/datapath/attach"
	kernel "weir/datapath/fairq"
	"weir/datapath/fairq/edge"
	"weir/datapath/reading"
	fairqlaw "weir/law/fairq"
)

// Law is FairQ at a switch.
type Law struct{}

// Name is FairQ's key in a file.
func (Law) Name() string { return "fairq" }

// Title is the name for people.
func (Law) Title() string { return "FairQ" }

// Own locks the pins of a switch.
func (Law) Own(c *switchd.Common) (switchd.Owner, error) {
	cfg, err := KernelConfig(c)
	if err != nil {
		return nil, err
	}
	o, err := kernel.Own(cfg)
	if err != nil {
		return nil, err
	}
	return owner{o}, nil
}

// Watch attaches programs that only observe.
func (Law) Watch(c *switchd.Common, ports []switchd.LawPort) (switchd.Watcher, error) {
	cfg, err := KernelConfig(c)
	if err != nil {
		return nil, err
	}
	cfg.Pin, cfg.TakeOver, cfg.Renew, cfg.Observe = "", false, false, true
	if cfg.Scale == kernel.ScaleUnify {
		cfg.Scale = kernel.ScaleLearn // unify would rewrite SYNs
	}
	f, err := kernel.Attach(kernelPorts(ports), cfg)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Open reads what is pinned in dir.
func (Law) Open(dir string) (switchd.View, error) {
	v, err := kernel.Open(dir)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Purge removes what is pinned in dir.
func (Law) Purge(dir string, before func() error) error { return kernel.Purge(dir, before) }

// CheckTaken returns an error if another switch has attached FairQ to a port.
func (Law) CheckTaken(dir string, ports ...attach.PortRef) error {
	return kernel.CheckTaken(dir, ports...)
}

// Needs lists the kernel features that the programs of the switch and of the edge use.
func (Law) Needs() []attach.Needs { return []attach.Needs{kernel.Needs(), edge.Needs()} }

// Rehearse has the kernel verify the programs.
func (Law) Rehearse() error { return kernel.Rehearse() }

// Memory returns the capacity of the tables in connections and their size in bytes.
func (Law) Memory(keys any, processors int) (connections int, bytes uint64, err error) {
	n := keys.(*allKeys).Flows
	bytes, err = kernel.Memory(uint32(n), processors)
	return n, bytes, err
}

// Changes describes the differences of the keys of all ports.
func (Law) Changes(was, is *switchd.Common) (changes []string) {
	a, b := was.Keys.(*allKeys), is.Keys.(*allKeys)
	for _, word := range []struct{ key, was, is string }{
		{"count", a.Count, b.Count}, {"scale", a.Scale, b.Scale}, {"shrink", a.Shrink, b.Shrink}, {"signed", a.Signed, b.Signed},
		{"scope", fmt.Sprint(was.Scope), fmt.Sprint(is.Scope)}, {"edge", edgeText(a.edge()), edgeText(b.edge())},
	} {
		if word.was != word.is {
			changes = append(changes, fmt.Sprintf("%s: %s became %s", word.key, word.was, word.is))
		}
	}
	return changes
}

func edgeText(e kernel.EdgeMode) string {
	if e.Interval == 0 {
		return "off"
	}
	return fmt.Sprintf("every %v, at %.3g, for %v", e.Interval, e.Change, e.Lease)
}

// KernelConfig returns the programs' configuration for all ports.
func KernelConfig(c *switchd.Common) (kernel.Config, error) {
	k, ok := c.Keys.(*allKeys)
	if !ok {
		return kernel.Config{}, fmt.Errorf("fairq: keys are %T", c.Keys)
	}
	p := fairqlaw.Default()
	p.Count, p.Scale, p.UnifyShift, p.Shrink = k.Count, k.Scale, k.UnifyShift, k.Shrink
	cfg, err := ProgramsConfig(p)
	signed, errSigned := signeds.parse("signed", k.Signed)
	cfg.Flows, cfg.Signed, cfg.Scope, cfg.Edge = uint32(k.Flows), signed, c.Scope, k.edge()
	cfg.Pin, cfg.TakeOver, cfg.Renew, cfg.Version, cfg.Watch = c.Pin, c.TakeOver, c.Renew, c.Version, c.Watch
	return cfg, errors.Join(err, errSigned)
}

// ProgramsConfig returns the switch programs' configuration for FairQ's parameters. The lab uses it, too.
func ProgramsConfig(p *fairqlaw.Params) (kernel.Config, error) {
	count, err1 := counts.parse("count", p.Count)
	scale, err2 := scales.parse("scale", p.Scale)
	shrink, err3 := shrinks.parse("shrink", p.Shrink)
	c := kernel.Config{Count: count, Scale: scale, Shrink: shrink}
	if scale == kernel.ScaleUnify {
		c.UnifyShift = uint8(p.UnifyShift)
	}
	if p.Edge {
		c.Edge = kernel.EdgeMode{Interval: p.EdgeInterval.Std(), Change: fairqlaw.EdgeChange, Lease: fairqlaw.EdgeLease.Std()}
	}
	return c, errors.Join(err1, err2, err3)
}

type owner struct{ *kernel.Owner }

func (o owner) Attach(ports []switchd.LawPort) (switchd.Running, error) {
	f, err := o.Owner.Attach(kernelPorts(ports))
	if err != nil {
		return nil, err
	}
	return running{f}, nil
}

// running is FairQ attached to the ports of a switch. The embedded Attachment provides the other methods of Running.
type running struct{ *kernel.Attachment }

func (r running) Attach(p switchd.LawPort) error { return r.Attachment.Attach(kernelPort(p)) }

func (r running) Configure(port string, p switchd.Params) error {
	return r.Attachment.Configure(port, p.(params).Law)
}

func (r running) Change(c *switchd.Common) (undo func() error, err error) {
	cfg, err := KernelConfig(c)
	if err != nil {
		return nil, err
	}
	return r.Attachment.Change(cfg)
}

func (r running) EachFlow(do func(port string, f reading.Flow) bool) error {
	return r.Attachment.EachFlow(do)
}

func (r running) Close(purge bool) error {
	if purge {
		return r.Attachment.Close()
	}
	return r.Detach()
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
