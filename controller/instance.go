package controller

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"net/netip"
	"time"

	"weir/config"
	"weir/controller/record"
	"weir/law"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// instance is a law that policies chose. The law gets the reports about the ports, hosts and VMs of its group, and its grants hold for
// those VMs only.
type instance struct {
	group *group
	owner law.Owner
	law   law.Law
	vmAt  func(netip.Addr) law.VM
	share uint32 // buckets of grants that hold, of shareOf

	live     map[liveKey]liveGrant
	sweepAt  int                // grants in live at which those that have ended are removed
	switches map[law.Switch]int // ports of the group, by switch
	counts   InstanceCounts

	reports  telemetry.Telemetry
	arrivals telemetry.Arrivals
	ports    inventory.Switch
	vms      inventory.Host
}

// InstanceCounts counts the grants of a law that policies chose.
type InstanceCounts struct {
	Passed   uint64 `json:"passed"`
	Other    uint64 `json:"other_vms"` // for VMs that the policies do not select: not sent
	Observed uint64 `json:"observed"`  // not sent, because the policies limit a part of the flows, or none
}

type liveKey struct {
	kind law.Kind
	key  law.Key
}

type liveGrant struct {
	value uint64
	ends  time.Duration
}

const shareOf = 1024

func newInstance(specs law.Specs, g *group, owner law.Owner, rec *record.Writer, vmAt func(netip.Addr) law.VM) (*instance, error) {
	spec, _ := specs.Named(g.law) // compiled before
	params := spec.Params()
	if err := config.DecodeParams([]byte(g.params), params); err != nil {
		return nil, err
	}
	l, err := spec.New(law.Controller, params, &law.Topology{})
	if err != nil {
		return nil, err
	}
	l = rec.Tap(l, g.law, owner, json.RawMessage(g.params))
	in := &instance{owner: owner, law: l, vmAt: vmAt, share: uint32(g.percent * shareOf / 100), live: map[liveKey]liveGrant{}, sweepAt: shareOf}
	in.become(g)
	return in, nil
}

// become replaces the selection.
func (in *instance) become(g *group) {
	in.group, in.switches = g, map[law.Switch]int{}
	for p := range g.ports {
		in.switches[p.Switch]++
	}
}

// Explain implements law.Explainer.
func (in *instance) Explain(b []byte) []byte {
	if x, is := in.law.(law.Explainer); is {
		return x.Explain(b)
	}
	return b
}

// Wake implements law.Law.
func (in *instance) Wake() time.Duration { return in.law.Wake() }

// Step implements law.Law.
func (in *instance) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	if e = in.filter(e); e == nil {
		return out
	}
	from := len(out)
	out = in.law.Step(now, e, out)
	kept := out[:from]
	for _, a := range out[from:] {
		if g, is := a.(law.Grant); !is || in.passes(now, &g) {
			kept = append(kept, a)
		}
	}
	clear(out[len(kept):])
	return kept
}

// filter returns the part of an event that is about the group; nil: none. The memory is borrowed until the next call.
func (in *instance) filter(e law.Event) law.Event {
	switch e := e.(type) {
	case *telemetry.Telemetry:
		if in.group.ports == nil {
			return e
		}
		if in.switches[e.At] == 0 {
			return nil
		}
		in.reports = telemetry.Telemetry{At: e.At, T: e.T, Ports: in.reports.Ports[:0]}
		for i := range e.Ports {
			if in.group.ports[law.Port{Switch: e.At, N: e.Ports[i].N}] {
				in.reports.Ports = append(in.reports.Ports, e.Ports[i])
			}
		}
		return &in.reports // also without ports: nothing waits at those of the group
	case *telemetry.Arrivals:
		if in.group.ports == nil {
			return e
		}
		in.arrivals = telemetry.Arrivals{At: e.At, T: e.T, Ports: in.arrivals.Ports[:0]}
		for i := range e.Ports {
			if in.group.ports[law.Port{Switch: e.At, N: e.Ports[i].N}] {
				in.arrivals.Ports = append(in.arrivals.Ports, e.Ports[i])
			}
		}
		if len(in.arrivals.Ports) == 0 {
			return nil
		}
		return &in.arrivals
	case *inventory.Switch:
		if in.group.ports == nil {
			return e
		}
		if in.switches[e.At] == 0 {
			return &inventory.SwitchLeft{At: e.At}
		}
		in.ports = inventory.Switch{At: e.At, Ports: in.ports.Ports[:0]}
		for _, p := range e.Ports {
			if in.group.ports[law.Port{Switch: e.At, N: p.N}] {
				in.ports.Ports = append(in.ports.Ports, p)
			}
		}
		return &in.ports
	case *inventory.Host:
		if in.group.vms == nil {
			return e
		}
		in.vms = inventory.Host{At: e.At, Rate: e.Rate, VMs: in.vms.VMs[:0]}
		for _, v := range e.VMs {
			if in.group.vms[v.Number] {
				in.vms.VMs = append(in.vms.VMs, v)
			}
		}
		return &in.vms
	}
	return e
}

// passes reports whether a grant is carried out. It remembers it until it ends.
func (in *instance) passes(now time.Duration, g *law.Grant) bool {
	k := liveKey{g.Kind, g.Key}
	if g.Lease == 0 { // a grant can be released also after the selection changed
		_, granted := in.live[k]
		delete(in.live, k)
		if granted {
			in.counts.Passed++
		}
		return granted
	}
	switch {
	case in.group.vms != nil && !in.group.vms[vmOf(&g.Key, in.vmAt)]:
		in.counts.Other++
		return false
	case bucket(&g.Key) >= in.share:
		in.counts.Observed++
		return false
	}
	in.counts.Passed++
	in.live[k] = liveGrant{g.Value, now + g.Lease}
	if len(in.live) > in.sweepAt {
		in.sweep(now)
	}
	return true
}

// sweep forgets grants that have ended.
func (in *instance) sweep(now time.Duration) {
	for k, g := range in.live {
		if g.ends <= now {
			delete(in.live, k)
		}
	}
	in.sweepAt = max(shareOf, 2*len(in.live))
}

// release returns actions that release grants gradually: those for which gone returns true.
func (in *instance) release(now time.Duration, gone func(law.VM) bool) (out []law.Action) {
	for k, g := range in.live {
		if !gone(vmOf(&k.key, in.vmAt)) {
			continue
		}
		delete(in.live, k)
		if g.ends > now {
			out = append(out, law.Grant{Kind: k.kind, Key: k.key, Value: g.value})
		}
	}
	return out
}

// bucket returns the bucket of a grant's traffic, below shareOf. Of a policy that limits a part of the flows, those in the first
// buckets are limited. All controllers choose the same.
func bucket(k *law.Key) uint32 {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 128), uint32(k.VM))
	b = append(b, k.Peer.AsSlice()...)
	if k.Flow != (law.Flow{}) {
		b = k.Flow.Dst.AppendTo(k.Flow.Src.AppendTo(b))
	}
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint32(sum[:]) % shareOf
}
