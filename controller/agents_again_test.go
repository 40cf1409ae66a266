package controller

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"weir/bus/weirv1"
	"weir/law"
	"weir/policy"
)

// An agent that restarts may have another number, at once. One that does not restart may not, and numbers do not change more often than an
// agent that is silent in between could change them.
func TestAgents_RestartWithAnotherNumber(t *testing.T) {
	r := newReports()
	vms := map[uint32]string{1: "10.0.0.1"}
	r.host(0, "h1", 7, 1, vms)
	r.host(2*time.Second, "h1", 9, 1, vms)
	if r.refused["host"] != 1 {
		t.Errorf("refused %v: the process is the same", r.refused)
	}
	r.host(4*time.Second, "h1", 9, 2, vms)
	if want := []string{"host 7: [1]", "host 7 left", "host 9: [1]"}; !slices.Equal(r.law.said, want) {
		t.Errorf("the law saw %q, want %q", r.law.said, want)
	}
	if r.vmAt(netip.MustParseAddr("10.0.0.1")) != 1 || r.hosts.of(9) != r.known["h1"] || r.hosts.of(7) != nil {
		t.Errorf("host 9 is of %v, host 7 of %v", r.hosts.of(9), r.hosts.of(7))
	}
	r.host(4*time.Second+agentSilence/2, "h1", 11, 3, vms)
	if r.refused["host"] != 2 {
		t.Errorf("refused %v: it has changed its number a moment ago", r.refused)
	}
	if r.host(7*time.Second, "h1", 11, 3, vms); r.law.said[len(r.law.said)-1] != "host 11: [1]" {
		t.Errorf("the law saw %q", r.law.said)
	}
	r.host(9*time.Second, "h1", 11, 4, vms) // it restarted with the same number
	if r.host(9*time.Second, "h1", 12, 4, vms); r.refused["host"] != 3 || r.hosts.of(11) != r.known["h1"] {
		t.Errorf("refused %v: the process has said its number", r.refused)
	}
	sw := func(now time.Duration, number, incarnation uint64) {
		r.serial++
		i := &weirv1.Inventory{Serial: r.serial, Parts: 1, Ports: []*weirv1.SwitchPort{{Port: 1, Name: "swp1"}}}
		r.events(now, "h1", &weirv1.Events{Origin: &weirv1.Origin{Incarnation: incarnation, Sequence: r.serial, StampNs: r.serial}, Switch: number, Inventory: i})
	}
	sw(10*time.Second, 3, 3)
	sw(20*time.Second, 4, 4)
	if r.switches.of(4) != r.known["h1"] || r.switches.of(3) != nil || r.hosts.of(11) != r.known["h1"] {
		t.Errorf("switch 4 is of %v, switch 3 of %v, host 11 of %v", r.switches.of(4), r.switches.of(3), r.hosts.of(11))
	}
}

// asking counts what the controller asks agents for.
type asking struct {
	askedNothing
	asked map[string]int
}

func (a asking) Ask(agent string) { a.asked[agent]++ }

// An agent's deadlines reach a new controller before its VMs. When these are known, the controller asks once for everything again.
func TestAgents_DeadlinesBeforeVMs(t *testing.T) {
	r := newReports()
	asks := asking{asked: map[string]int{}}
	r.bus = asks
	declared := func(now time.Duration) {
		f := law.Flow{Src: netip.MustParseAddrPort("10.0.0.1:1"), Dst: netip.MustParseAddrPort("10.0.0.2:2"), Proto: 6}
		r.events(now, "h1", &weirv1.Events{
			Origin: &weirv1.Origin{Incarnation: 1, StampNs: 1}, Host: 7,
			Deadlines: []*weirv1.Deadline{{Flow: weirv1.NewFlow(f), WithinNs: 1e9, SizeBytes: 1e6, Number: 1}},
		})
	}
	declared(0)
	declared(0)
	before := asks.asked["h1"] // of an agent that is new
	r.host(time.Millisecond, "h1", 7, 1, map[uint32]string{1: "10.0.0.1"})
	if n := asks.asked["h1"] - before; n != 1 {
		t.Errorf("asked %d times", n)
	}
	declared(2 * time.Millisecond)
	if last := r.law.said[len(r.law.said)-1]; r.refused["deadline"] != 2 || last == "host 7: [1]" {
		t.Errorf("refused %v, the law saw %q", r.refused, r.law.said)
	}
	if r.host(2*time.Second, "h1", 7, 1, nil); asks.asked["h1"]-before != 1 {
		t.Error("asked again although nothing was refused")
	}
}

// The switch ports that lead to a host limit its guarantees, at the controller as in the store.
func TestAgents_LivePortsLimitGuarantees(t *testing.T) {
	r := newReports()
	r.host(0, "h1", 7, 1, map[uint32]string{1: "10.0.0.1"})
	ag := r.known["h1"]
	ag.node.Host.Switches, ag.own = []string{"s1"}, nil
	i := slices.IndexFunc(r.live(), func(n policy.Node) bool { return n.Name == "h1" })
	if host := r.live()[i].Host; !slices.Equal(host.Switches, []string{"s1"}) || len(host.VMs) != 1 {
		t.Errorf("%+v", host)
	}
}
