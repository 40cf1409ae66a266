// Package lossrepair implements the repair of losses (RSED's reinject) at a switch: its keys of the file, its parameters at a port, its
// kernel program. `weir switch`, agents and the lab use it.
package lossrepair

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/agent/switchd"
	"weir/config"
	"weir/datapath/attach"
	"weir/datapath/reading"
	kernel "weir/datapath/repair"
	"weir/law"
	"weir/law/sed"
)

// Law is the repair of losses at a switch. Its keys of a port are those of a file, or an experiment's parameters; both are
// *sed.LossRepairParams.
type Law struct {
	// Lease is how long packets are parked after the last heartbeat. 0: 1 s.
	Lease time.Duration
}

// allKeys are the keys of all ports together: none.
type allKeys struct{}

// Facts returns the keys, and what the program needs.
func (Law) Facts() *switchd.Facts {
	spec := sed.LossRepairSpec()
	return &switchd.Facts{
		Spec: &spec, Title: "loss repair", All: &allKeys{}, Port: spec.Params(), Needs: []attach.Needs{kernel.Needs()},
	}
}

// Check checks what a schema cannot express.
func (Law) Check(c *config.Checker, at []string, keys any) {
	k, ok := keys.(*sed.LossRepairParams)
	if !ok {
		return
	}
	err := k.Check()
	if k.Park == 0 {
		err = errors.New("0 keeps nothing")
	}
	if err != nil {
		c.Fail(append(slices.Clone(at), "park"), err.Error(), "above 0B, such as 150KB")
	}
}

// WholePorts implements switchd.WholePorts.
func (Law) WholePorts() {}

// KeysOf implements switchd.ByPolicy.
func (Law) KeysOf(text json.RawMessage) (all, port map[string]any, err error) {
	p := sed.LossRepairSpec().Params().(*sed.LossRepairParams)
	if err := config.DecodeParams(text, p); err != nil {
		return nil, nil, err
	}
	return map[string]any{}, map[string]any{"park": p.Park}, nil
}

// params are the law's parameters at a port, in the form that the program uses.
type params struct {
	kernel.Law
	buffer, mtu uint32
}

// At returns the parameters of a port with these keys. A queue that is too short is an error.
func (Law) At(site switchd.Site, keys any) (switchd.Params, error) {
	k, ok := keys.(*sed.LossRepairParams)
	if !ok {
		return nil, fmt.Errorf("lossrepair: keys are %T", keys)
	}
	rate := float64(site.Rate)
	if site.LineBytes > 0 { // the line takes longer than its rate and the bytes that the kernel counts say
		rate *= float64(site.MTU) / float64(site.MTU+int(site.LineBytes))
	}
	at, err := k.At(law.Rate(rate), site.Buffer)
	of := kernel.Law{Bps: uint64(rate), LimitBytes: uint32(at.Limit), ParkBytes: uint32(at.Most), Due: at.Due, Burst: at.Burst}
	return params{of, uint32(site.Buffer), uint32(site.MTU)}, err
}

// Figures returns the values of the parameters at the port, in bytes. Target is how much of the queue packets fill that did not wait.
func (p params) Figures() switchd.Figures {
	f := switchd.Figures{Target: p.LimitBytes, Buffer: p.buffer, MTU: p.mtu}
	if p.Off {
		f.Mode = reading.EnforceNone
	}
	return f
}

// With returns the parameters for a port that is repaired or only observed.
func (p params) With(h switchd.Enforcement) switchd.Params {
	p.Off = h.Mode == reading.EnforceNone
	return p
}

// Differs describes the difference.
func (p params) Differs(before switchd.Params) string {
	was := before.(params)
	switch {
	case was == p:
		return ""
	case was.ParkBytes != p.ParkBytes:
		return fmt.Sprintf("keeps %v", law.Bytes(p.ParkBytes))
	case was.Off != p.Off && p.Off:
		return "repairs nothing"
	case was.Off != p.Off:
		return "repairs losses"
	}
	return "its parameters changed"
}

// Own locks the pins of a switch.
func (l Law) Own(c *switchd.Common) (switchd.Running, error) {
	r, err := kernel.Own(kernel.Config{Pin: c.Pin, TakeOver: c.TakeOver, Renew: c.Renew, Version: c.Version, Lease: l.Lease})
	if err != nil {
		return nil, err
	}
	return &running{Repair: r}, nil
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

// CheckTaken returns an error if another switch has attached this law or FairQ to a port.
func (Law) CheckTaken(dir string, ports ...attach.PortRef) error {
	return kernel.CheckTaken(dir, ports...)
}

// Rehearse has the kernel verify the program.
func (Law) Rehearse() error { return kernel.Rehearse() }

// Memory returns the capacity of the table in flows that wait, and the size of the tables in bytes.
func (Law) Memory(_ any, processors int) (connections int, bytes uint64, err error) {
	return kernel.Memory(processors)
}

// running is the law at a switch. The embedded Repair provides the other methods of switchd.Running.
type running struct {
	*kernel.Repair
	attached bool // Attach has succeeded
}

func (r *running) Attach(ports ...switchd.LawPort) error {
	all := make([]kernel.Port, len(ports))
	for i, p := range ports {
		all[i] = kernel.Port{PortRef: p.PortRef, Law: p.Params.(params).Law}
	}
	err := r.Repair.Attach(all...)
	r.attached = r.attached || err == nil
	return err
}

func (r *running) EachFlow(func(port string, f reading.Flow) bool) error { return nil }

// Change changes nothing: the ports share no keys, and the scope holds for flows that are limited.
func (r *running) Change(*switchd.Common) (undo func() error, err error) {
	return func() error { return nil }, nil
}

// Note keeps no text: nothing is rolled back.
func (r *running) Note(string, string) error { return nil }

func (r *running) End(how switchd.Ending) error {
	switch {
	case !r.attached:
		return r.GiveUp()
	case how == switchd.Purge:
		return r.Close()
	case how == switchd.Detach:
		return r.Detach()
	}
	return r.Leave()
}
