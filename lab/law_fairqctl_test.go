package lab

import (
	"net"
	"slices"
	"strings"
	"testing"

	"weir/datapath/testnet"
	"weir/experiment"
	"weir/internal/testroot"
	"weir/law/fairqctl"
)

// The controller of an Open vSwitch counts flows from copies of SYNs and FINs, and a hypervisor limits its guest's windows. A flow alone
// gets all of 67,500 B, and two flows to one port get a half each. When the law has ended, windows are as large as before, and the
// switches have their controller again.
func TestFairQCtl_OnTheWire(t *testing.T) {
	testroot.Need(t, "namespaces")
	g := onOVS(t, dumbbell(2, true))
	l, err := Up(t.Context(), testName("fairqctl"), g.config(), Options{Owned: true, Controller: testController(t), Agent: testAgent(t), Commanded: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	p := *fairqctl.Default()
	p.TargetFraction, p.Rate, p.Buffer = 0.5, 200*mbit, 125_000
	r := &experiment.Run{Scheme: "s", Config: *g.config(), Laws: []string{fairqctl.Name}, At: []string{"switch"}, Params: map[string]any{fairqctl.Name: p}}
	works := Laws{fairqctl.Name: Controlled(fairqctl.Spec())}
	if err := works.Check(r); err != nil {
		t.Fatal(err)
	}
	stop, err := l.Enforce(t.Context(), r, works)
	if err != nil {
		t.Fatal(err)
	}
	guest := testnet.NewTap(t, portOf(t, l, "sender1->sender1.hv"))
	first := l.controller.Pid
	largest := func(client, server *net.TCPConn) (window, unit uint32) {
		windows, err := sendLimited(t, guest, client, server, 200_000)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Max(windows), 1 << testnet.ReadTCPInfo(t, client).PeerScale
	}
	err = dial(l, "sender1", "receiver1", 0, func(client, server *net.TCPConn) error {
		testnet.Until(t, "one flow has all", func() bool {
			w, unit := largest(client, server)
			return w > 67_500-unit && w < 67_500+unit
		})
		return dial(l, "sender2", "receiver1", 0, func(_, _ *net.TCPConn) error {
			testnet.Until(t, "two flows have a half each", func() bool {
				w, unit := largest(client, server)
				return w > 33_750-unit && w < 33_750+unit
			})
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if tally, err := l.laws[0].Tally(); err != nil || tally["grants"] < 4 {
		t.Errorf("tally %v, %v", tally, err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if l.controller.Pid == first {
		t.Error("the controller is that of the law")
	}
	if err := l.awaitController(t.Context(), func(string) {}); err != nil {
		t.Fatal(err)
	}
	err = dial(l, "sender1", "receiver1", 0, func(client, server *net.TCPConn) error {
		if w, unit := largest(client, server); w < 67_500+unit {
			t.Errorf("a window of %d B after the law has ended", w)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A law that gets copies counts at all switches, so a scheme that names some of them is refused.
func TestControlled_CopiesAtAllSwitches(t *testing.T) {
	g := racks(2, 1, true)
	g.kind = "ovs"
	p := *fairqctl.Default()
	p.Rate, p.Buffer = 200*mbit, 125_000
	r := &experiment.Run{Scheme: "s", Config: *g.config(), Laws: []string{fairqctl.Name}, At: []string{"tor1", "tor2"}, Params: map[string]any{fairqctl.Name: p}}
	works := Laws{fairqctl.Name: Controlled(fairqctl.Spec())}
	if err := works.Check(r); err == nil || !strings.Contains(err.Error(), "remove at from scheme s") {
		t.Errorf("%v", err)
	}
	r.At = []string{"core", "tor1", "tor2"}
	if err := works.Check(r); err != nil {
		t.Error(err)
	}
}

// A law that gets copies needs OpenFlow switches.
func TestControlled_CopiesNeedOpenFlow(t *testing.T) {
	r := &experiment.Run{Config: *dumbbell(1, true).config(), Laws: []string{fairqctl.Name}, Params: map[string]any{fairqctl.Name: *fairqctl.Default()}}
	err := Laws{fairqctl.Name: Controlled(fairqctl.Spec())}.Check(r)
	if err == nil || !strings.Contains(err.Error(), "set topology.switch: ovs") {
		t.Errorf("%v", err)
	}
}
