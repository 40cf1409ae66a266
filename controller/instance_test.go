package controller

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"weir/law"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// recording records the numbers of ports and VMs in the events that it gets, and returns actions that the test sets.
type recording struct {
	seen []uint32
	out  []law.Action
}

func (l *recording) Wake() time.Duration { return 0 }

func (l *recording) Step(_ time.Duration, e law.Event, out []law.Action) []law.Action {
	switch e := e.(type) {
	case *telemetry.Telemetry:
		l.seen = append(l.seen, 1000)
		for i := range e.Ports {
			l.seen = append(l.seen, e.Ports[i].N)
		}
	case *telemetry.Arrivals:
		l.seen = append(l.seen, 2000)
		for i := range e.Ports {
			l.seen = append(l.seen, e.Ports[i].N)
		}
	case *inventory.Switch:
		l.seen = append(l.seen, 3000)
		for _, p := range e.Ports {
			l.seen = append(l.seen, p.N)
		}
	case *inventory.SwitchLeft:
		l.seen = append(l.seen, 3999)
	case *inventory.Host:
		l.seen = append(l.seen, 4000)
		for _, v := range e.VMs {
			l.seen = append(l.seen, uint32(v.Number))
		}
	}
	return append(out, l.out...)
}

func newRecorded(g *group) (*instance, *recording) {
	l := &recording{}
	in := &instance{
		law: l, vmAt: func(a netip.Addr) law.VM { return law.VM(a.As4()[3]) }, share: uint32(g.percent * shareOf / 100), live: map[liveKey]liveGrant{}, sweepAt: 2,
	}
	in.become(g)
	return in, l
}

// A law of policies sees the ports and VMs that they select, and no others.
func TestInstance_SeesItsSelection(t *testing.T) {
	ports := func(n ...uint32) (out []telemetry.Port) {
		for _, n := range n {
			out = append(out, telemetry.Port{N: n})
		}
		return out
	}
	arrivals := func(n ...uint32) (out []telemetry.PortArrivals) {
		for _, n := range n {
			out = append(out, telemetry.PortArrivals{N: n})
		}
		return out
	}
	events := []law.Event{
		&telemetry.Telemetry{At: 1, Ports: ports(1, 2, 3)}, &telemetry.Telemetry{At: 1, Ports: ports(3)}, &telemetry.Telemetry{At: 2, Ports: ports(1)},
		&telemetry.Arrivals{At: 1, Ports: arrivals(2, 3)}, &telemetry.Arrivals{At: 1, Ports: arrivals(3)}, &telemetry.Arrivals{At: 2, Ports: arrivals(1)},
		&inventory.Switch{At: 1, Ports: []inventory.Port{{N: 1}, {N: 3}}}, &inventory.Switch{At: 2, Ports: []inventory.Port{{N: 1}}},
		&inventory.Host{At: 1, VMs: []inventory.VM{{Number: 5}, {Number: 6}}},
	}
	for name, row := range map[string]struct {
		g    group
		want []uint32
	}{
		"ports": {group{percent: 100, ports: map[law.Port]bool{{Switch: 1, N: 1}: true, {Switch: 1, N: 2}: true}},
			[]uint32{1000, 1, 2, 1000, 2000, 2, 3000, 1, 3999, 4000, 5, 6}},
		"vms":       {group{percent: 100, vms: map[law.VM]bool{6: true}}, []uint32{1000, 1, 2, 3, 1000, 3, 1000, 1, 2000, 2, 3, 2000, 3, 2000, 1, 3000, 1, 3, 3000, 1, 4000, 6}},
		"no ports":  {group{percent: 100, ports: map[law.Port]bool{}}, []uint32{3999, 3999, 4000, 5, 6}},
		"no VM yet": {group{percent: 100, ports: map[law.Port]bool{}, vms: map[law.VM]bool{}}, []uint32{3999, 3999, 4000}},
	} {
		in, l := newRecorded(&row.g)
		for _, e := range events {
			in.Step(0, e, nil)
		}
		if !slices.Equal(l.seen, row.want) {
			t.Errorf("%s: it saw %v, want %v", name, l.seen, row.want)
		}
	}
}

// Its grants hold for selected VMs, also those for a flow without a VM. It releases what it granted, once, and nothing that has ended.
func TestInstance_GrantsForItsSelection(t *testing.T) {
	in, l := newRecorded(&group{percent: 100, vms: map[law.VM]bool{5: true}})
	of := func(vm law.VM, lease time.Duration) law.Grant {
		return law.Grant{Kind: law.WindowGrant, Key: law.Key{Pair: law.Pair{VM: vm}}, Value: 9, Lease: lease}
	}
	flow := of(0, 3*time.Second)
	flow.Key.Flow.Src = netip.MustParseAddrPort("10.0.0.5:80")
	other := flow
	other.Key.Flow.Src = netip.MustParseAddrPort("10.0.0.6:80")
	l.out = []law.Action{of(5, time.Second), of(6, time.Second), flow, other, law.Action(of(6, 0)), of(5, 0), of(5, time.Second)}
	got := in.Step(time.Second, law.Tick{}, []law.Action{of(1, 1)})
	if want := []law.Action{of(1, 1), of(5, time.Second), flow, of(5, 0), of(5, time.Second)}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if c := in.counts; c != (InstanceCounts{Passed: 4, Other: 2}) {
		t.Errorf("%+v", c)
	}
	if n := in.release(time.Second, func(vm law.VM) bool { return vm == 6 }); n != nil {
		t.Errorf("%+v", n)
	}
	all := func(law.VM) bool { return true }
	flow.Lease = 0
	if got := in.release(3*time.Second, all); !slices.Equal(got, []law.Action{flow}) { // the other one has ended
		t.Errorf("%+v", got)
	}
	if got := in.release(3*time.Second, all); got != nil {
		t.Errorf("released again: %+v", got)
	}
}
