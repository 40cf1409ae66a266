//go:build cgo

package laws

import (
	"strings"
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/law/fairq"
	"weir/sim/event"
	"weir/sim/network"
)

// The table has the kernel's limits: a share for each port that opens connections, pending connections that are
// forgotten, and sweeps that remove ended ones.
func TestFairQ_TableIsBounded(t *testing.T) {
	b := newBed(t, 1, fairQDefaults())
	sw := b.port("switch->receiver1").sw
	if sw.share != 65536/3 || sw.mostFlows != 65536 || sw.mostPending != 16384 {
		t.Errorf("share %d, %d flows, %d pending", sw.share, sw.mostFlows, sw.mostPending)
	}
	sw.share, sw.mostPending = 1, 2
	one, two := b.talk(0, "sender1", "receiver1"), b.talk(1, "sender1", "receiver1")
	one.opens()
	_, ack := two.opens()
	b.expect("no room in the share", ack, 60_000)
	if c := b.tally(); sw.flows != 1 || c[fairq.Opened] != 1 || c[fairq.Refused] != 1 {
		t.Errorf("%d in the table, %+v", sw.flows, c)
	}
	one.says(0, network.ACK|network.FIN, 0, 60_000)
	one.says(1, network.ACK|network.FIN, 0, 60_000)
	b.wait(event.Second)
	if sw.flows != 0 || sw.sweep.Pending() {
		t.Errorf("%d in the table after its end, sweep %v", sw.flows, sw.sweep.Pending())
	}
	b.expect("now there is room", two.window(0), 196)
	for i := range int32(5) { // SYNs only: two are pending, the others forgotten
		b.talk(10+i, "sender2", "receiver1").says(0, network.SYN, 0, 65_535)
	}
	if sw.pending != 2 || sw.find(12) != nil || sw.find(13) == nil || sw.find(14) == nil || len(sw.table) > 5 {
		t.Errorf("%d pending, a table of %d", sw.pending, len(sw.table))
	}
	b.expect("a forgotten one passes", b.talk(10, "sender2", "receiver1").says(1, network.ACK, 0, 60_000).Window(), 60_000)
	again := b.talk(1, "sender2", "receiver1") // its number is used again, while the other is in the table
	syn := again.segment(0, network.SYN, 0, 65_535)
	syn.SetSeq(77)
	again.send(syn)
	if c := sw.find(1); sw.flows != 0 || c == nil || c.entered || c.ends[0].First != 77 {
		t.Errorf("%d in the table, %+v", sw.flows, c)
	}
	answer := again.segment(1, network.SYN|network.ACK, 0, 65_535)
	answer.SetAck(78)
	again.send(answer)
	b.expect("and limited", again.window(0), 196)
}

// scale: unify. Both ends hear 7, and windows are converted, even if nothing is granted.
func TestFairQ_Unify(t *testing.T) {
	p := fairQDefaults()
	p.Scale, p.UnifyShift = "unify", 7
	b := newBed(t, 2, p)
	k := b.talk(0, "sender1", "receiver1")
	k.scale = [2]int8{3, 9}
	for range 2 {
		if pk := k.says(0, network.SYN, 0, 65_535); pk.Scale() != 7 || pk.Window() != 65_535 {
			t.Errorf("SYN: scale %d, window %d", pk.Scale(), pk.Window())
		}
	}
	for range 2 {
		if pk := k.says(1, network.SYN|network.ACK, 0, 65_535); pk.Scale() != 7 || pk.Window() != 65_535 {
			t.Errorf("SYN-ACK: scale %d, window %d", pk.Scale(), pk.Window())
		}
	}
	b.expect("1000 << 3 is 62.5 << 7", k.says(0, network.ACK, 0, 1000).Window(), 62)
	b.expect("limited: 25000", k.says(1, network.ACK, 0, 1000).Window(), 196)
	b.expect("20 << 9 is 80 << 7", k.says(1, network.ACK, 0, 20).Window(), 80)
	b.wait(30 * event.Millisecond)
	b.expect("nobody sends: 60000 << 9 saturates", k.says(1, network.ACK, 0, 60_000).Window(), 65_535)
	b.expect("nobody sends", k.says(0, network.ACK, 0, 1000).Window(), 62)
	k = b.talk(1, "sender1", "receiver1")
	k.scale = [2]int8{3, -1}
	k.says(0, network.SYN, 0, 65_535)
	if pk := k.says(1, network.SYN|network.ACK, 0, 65_535); pk.Scale() != -1 {
		t.Errorf("SYN-ACK without the option: scale %d", pk.Scale())
	}
	b.expect("nobody scales", k.says(0, network.ACK, 0, 1000).Window(), 1000)
}

// shrink: avoid. A window that shrinks grants nothing new until the earlier grant is used up.
func TestFairQ_ShrinkAvoidKeepsTheEdge(t *testing.T) {
	p := fairQDefaults()
	p.Shrink = "avoid"
	b := newBed(t, 1, p)
	one := b.talk(0, "sender1", "receiver1")
	one.opens()
	b.expect("nothing was granted with its SYN-ACK: the first ACK passes", one.window(1), 60_000)
	two := b.talk(1, "sender2", "receiver1")
	two.opens() // its SYN-ACK granted 25000; two flows have 12500 each
	b.expect("the edge stays: 25000", two.window(1), 196)
	pk := two.segment(1, network.ACK, 0, 60_000)
	pk.SetAck(pk.Ack() + 12_500)
	b.expect("12588 bytes are left of it", two.send(pk).Window(), 99)
	pk = two.segment(1, network.ACK, 0, 60_000)
	pk.SetAck(pk.Ack() + 25_000)
	b.expect("the edge moves on: 12500", two.send(pk).Window(), 98)
}

// Parameters that the simulator lacks, or that the law cannot have, are refused in one line that names them.
func TestFairQ_RefusesWhatCannotBe(t *testing.T) {
	for want, edit := range map[string]func(p *fairq.Params){
		"edge mode with scale: unify":             func(p *fairq.Params) { p.Edge, p.Scale = true, "unify" },
		"an edge_interval of 600ms":               func(p *fairq.Params) { p.Edge, p.EdgeInterval = true, 600e6 },
		"a sampling interval of 500ns":            func(p *fairq.Params) { p.Interval = 500 },
		"a sampling interval of 200ms and 10":     func(p *fairq.Params) { p.Interval = 200e6 },
		"windows of 0B to 2147483648B":            func(p *fairq.Params) { p.MaxWindow = 1 << 31 },
		"between sender1 and switch: a buffer of": nil,
	} {
		p := fairQDefaults()
		r := &experiment.Run{Laws: []string{"fairq"}, Params: map[string]any{"fairq": p}}
		if edit == nil {
			r.Config.Graph = &experiment.Graph{Links: []experiment.Link{{A: "sender1", B: "switch", Rate: 1e9, Buffer: law.Limit{N: 1 << 32}}}}
		} else {
			edit(&p)
			r.Params["fairq"] = p
		}
		if err := testWorks.Check(r); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want one line with %q", err, want)
		}
	}
	if err := testWorks.Check(&experiment.Run{Laws: []string{"fairq"}}); err == nil {
		t.Error("no parameters were accepted")
	}
}

// A packet allocates nothing.
func TestFairQ_DoesNotAllocate(t *testing.T) {
	for _, shrink := range []string{"allow", "avoid"} {
		p := fairQDefaults()
		p.Shrink = shrink
		b := newBed(t, 1, p)
		k := b.talk(0, "sender1", "receiver1")
		k.opens()
		data, ack := k.segment(0, network.ACK, 1460, 60_000), k.segment(1, network.ACK, 0, 60_000)
		there, back := b.port("switch->receiver1"), b.port("switch->sender1")
		now := b.net.Queue.Now()
		if n := testing.AllocsPerRun(1000, func() {
			ack.SetWindow(60_000)
			there.Packet(there.port, data, now)
			back.Packet(back.port, ack, now)
			there.known.grantQ8 = 0 // it has to ask
			there.sample(now)
		}); n > 0 {
			t.Errorf("shrink %s: %v allocations", shrink, n)
		}
	}
}
