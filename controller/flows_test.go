package controller

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bus/weirv1"
	"weir/law"
)

// Declarations and the progress of flows come to the law, in their order. A host cannot declare for another host's VM, and a switch not at all.
func TestFlows_ToTheLaw(t *testing.T) {
	k := newBusKit(t)
	k.run()
	one, two, sw := k.agent("h1"), k.agent("h2"), k.agent("s1")
	one.hosts(t, 7, 1, 1)
	two.hosts(t, 8, 1, 2)
	k.until("the laws know the hosts", func() bool { return k.law.has("host 7: [1]") && k.law.has("host 8: [2]") })
	flow := func(vm byte, port uint16) *weirv1.Flow {
		return weirv1.NewFlow(law.Flow{
			Src: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, vm}), port), Dst: netip.MustParseAddrPort("10.0.9.9:80"), Proto: 6,
		})
	}
	send := func(p *played, e *weirv1.Events) {
		t.Helper()
		if err := p.SendEvents(e); err != nil {
			t.Fatal(err)
		}
	}
	declared := func(vm byte, port uint16) []*weirv1.Deadline {
		return []*weirv1.Deadline{{Flow: flow(vm, port), SizeBytes: 8e6, WithinNs: 3e8, Value: 4, Number: 5}}
	}
	send(two, &weirv1.Events{Host: 8, Deadlines: declared(1, 1001)})
	send(two, &weirv1.Events{Host: 8, Deadlines: declared(2, 1002)})
	k.until("another host's deadline", func() bool { return k.law.has("declared 10.0.0.2:1002: 8000000 B, value 4, number 5, in time true") })
	send(sw, &weirv1.Events{Switch: 3, Deadlines: declared(1, 1003)})
	send(sw, &weirv1.Events{Switch: 3, Flows: []*weirv1.FlowReport{
		{Port: 4, Flow: flow(1, 1004), Began: true, SentBytes: 100}, {Port: 4, Flow: flow(1, 1005), SentBytes: 200, Ended: true},
		{Port: 4, Flow: flow(1, 1005), Began: true, SentBytes: 10},
	}})
	k.until("the flows of the switch", func() bool { return k.law.has("sent at 4: 10.0.0.1:1005, 10 B") })
	send(one, &weirv1.Events{Host: 7, Deadlines: declared(1, 1006)})
	k.until("the host's own deadline", func() bool { return k.law.has("declared 10.0.0.1:1006: 8000000 B, value 4, number 5, in time true") })
	k.law.mu.Lock()
	defer k.law.mu.Unlock()
	at := slices.Index(k.law.said, "began at 4: 10.0.0.1:1004")
	want := []string{
		"began at 4: 10.0.0.1:1004", "sent at 4: 10.0.0.1:1004, 100 B", "sent at 4: 10.0.0.1:1005, 200 B", "ended at 4: 10.0.0.1:1005",
		"began at 4: 10.0.0.1:1005", "sent at 4: 10.0.0.1:1005, 10 B",
	}
	if at < 0 || !slices.Equal(k.law.said[at:at+len(want)], want) {
		t.Errorf("%q", k.law.said)
	}
	for _, said := range k.law.said {
		if strings.Contains(said, ":1001") || strings.Contains(said, ":1003") {
			t.Errorf("%s", said)
		}
	}
}

// The fastest message of the last windows has taken no time. An old fastest one is forgotten, because clocks drift.
func TestDelay(t *testing.T) {
	const ms = time.Millisecond
	var d delay
	for _, c := range []struct{ sent, came, late time.Duration }{
		{1000 * ms, 5 * ms, 0}, // the clocks differ
		{1100 * ms, 107 * ms, 2 * ms},
		{1200 * ms, 203 * ms, 0},
		{1300 * ms, 323 * ms, 20 * ms},
		{12300 * ms, 11308 * ms, 5 * ms}, // the next window
		{23300 * ms, 22309 * ms, 1 * ms}, // the first one is forgotten
	} {
		if d.see(c.came, c.sent); d.late != c.late {
			t.Errorf("sent %v, came %v: late %v, want %v", c.sent, c.came, d.late, c.late)
		}
	}
}
