package controller

import (
	"bytes"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bus/weirv1"
	"weir/law"
)

// reports plays agents that report hosts, without a bus.
type reports struct {
	*agents
	law    *answering
	text   bytes.Buffer // the log
	serial uint64
}

func newReports() *reports {
	r := &reports{law: &answering{vms: map[law.VM]law.Host{}}}
	core := newCore(newFence(nil, 1, silent), silent, namedLaw{name: "answering", Law: r.law})
	r.agents = newAgents(core, slog.New(slog.NewTextHandler(&r.text, nil)))
	core.agents, r.bus, r.link = r.agents, askedNothing{}, &busLink{nodes: newNodes(nil, 1, silent)}
	return r
}

// host reports VMs with their addresses, as the agent's process with this incarnation.
func (r *reports) host(now time.Duration, agent string, host uint32, incarnation uint64, vms map[uint32]string) {
	r.serial++
	i := &weirv1.Inventory{Serial: r.serial, Parts: 1}
	for n, address := range vms {
		i.Guests = append(i.Guests, &weirv1.Guest{Vm: n, Addresses: []*weirv1.Range{weirv1.NewRange(netip.PrefixFrom(netip.MustParseAddr(address), 32))}})
	}
	o := &weirv1.Origin{Incarnation: incarnation, Sequence: r.serial, StampNs: r.serial}
	r.events(now, agent, &weirv1.Events{Origin: o, Host: host, Inventory: i})
}

// An agent sends 4000 inventories in a second, then as many as a process that restarts all the time. The laws get one a second, the
// newest at last, and the log has few lines.
func TestAgents_InventoryFlood(t *testing.T) {
	r := newReports()
	const messages = 4000
	for i := range messages {
		now := time.Duration(i) * time.Second / messages
		r.host(now, "h7", 7, 1, map[uint32]string{uint32(i + 1): "10.0.0.1"})
	}
	if want := []string{"host 7: [1]"}; !slices.Equal(r.law.said, want) {
		t.Errorf("in a second the law saw %d inventories, want %q", len(r.law.said), want)
	}
	r.look(1100 * time.Millisecond)
	if len(r.law.said) != 2 || r.law.said[1] != "host 7: [4000]" {
		t.Errorf("after it %d, want the newest one", len(r.law.said))
	}
	for i := range messages {
		r.host(1200*time.Millisecond, "h7", 7, uint64(i+2), map[uint32]string{1: "10.0.0.1"})
	}
	if len(r.law.said) != 2 {
		t.Errorf("restarts of the agent: %d", len(r.law.said))
	}
	for s := range 30 {
		r.host(time.Duration(s+3)*time.Second, "h7", 7, 1, map[uint32]string{uint32(s + 1): "10.0.0.1"})
	}
	if n := strings.Count(r.text.String(), "an agent reports its VMs"); len(r.law.said) != 32 || n > linesMost {
		t.Errorf("%d inventories, %d lines in the log", len(r.law.said), n)
	}
}

const linesMost = 11

// Agents with messages have one turn each, also after a report took the messages of one of them.
func TestLetters_OneTurnEach(t *testing.T) {
	r := newReports()
	for range 100 {
		r.arrived("a", &weirv1.Events{})
		if n := len(r.mail.of("a")); n != 1 {
			t.Fatalf("%d messages", n)
		}
	}
	for _, name := range []string{"a", "a", "a", "b", "b"} {
		r.arrived(name, &weirv1.Events{})
	}
	if n := r.mail.ring.len(); n != 2 {
		t.Errorf("%d turns of 2 agents", n)
	}
	got := ""
	for name, _, ok := r.mail.next(); ok; name, _, ok = r.mail.next() {
		got += name
	}
	if got != "ababa" || len(r.mail.byAgent) != 0 || r.mail.ring.len() != 0 {
		t.Errorf("turns %s, %d agents and %d turns left", got, len(r.mail.byAgent), r.mail.ring.len())
	}
}

// An agent is not silent while its messages wait for the laws.
func TestAgents_NotSilentWithMail(t *testing.T) {
	r := newReports()
	r.host(0, "h7", 7, 1, nil)
	r.arrived("h7", &weirv1.Events{})
	if r.look(time.Minute); r.known["h7"] == nil {
		t.Error("an agent whose message waits is silent")
	}
	r.mail.of("h7")
	if r.look(2 * time.Minute); r.known["h7"] != nil {
		t.Error("an agent without a message is not silent")
	}
}

// An agent cannot take the address of another agent's VM. Its own VM has the address when the first one gives it up or leaves.
func TestAgents_AddressClaims(t *testing.T) {
	r := newReports()
	ip := netip.MustParseAddr("10.0.0.1")
	check := func(what string, want law.VM) {
		t.Helper()
		if got := r.vmAt(ip); got != want {
			t.Errorf("%s: VM %d has the address, want %d", what, got, want)
		}
		for _, ag := range r.known {
			for _, vm := range r.hostOf(ag).VMs {
				if (len(vm.Addresses) > 0) != (vm.Number == want) {
					t.Errorf("%s: the laws learn %v of VM %d", what, vm.Addresses, vm.Number)
				}
			}
		}
	}
	r.host(0, "h1", 7, 1, map[uint32]string{9: "10.0.0.1"})
	r.host(0, "liar", 8, 1, map[uint32]string{1: "10.0.0.1"})
	check("claimed by two", 9)
	if r.refused["address"] != 1 {
		t.Errorf("refused: %v", r.refused)
	}
	r.host(2*time.Second, "h1", 7, 1, nil)
	check("given up", 1)
	if n := len(r.law.said); n != 4 || r.law.said[3] != "host 8: [1]" {
		t.Errorf("the law saw %q", r.law.said)
	}
	r.host(4*time.Second, "h1", 7, 1, map[uint32]string{9: "10.0.0.1"})
	check("claimed back", 1)
	r.leave(r.known["liar"])
	check("the other left", 9)
}
