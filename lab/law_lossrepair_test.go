package lab

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/datapath/testnet"
	"weir/experiment"
	"weir/law"
	"weir/law/droptail"
	"weir/law/sed"
)

// A cubic flow overflows a port. With repair the switch keeps the segments and puts them back; with deeptail its queue is longer. Both
// leave the port as it was.
func TestRepair_AtASwitch(t *testing.T) {
	g := &graphBuilder{}
	g.sw("switch")
	g.host("sender1", "switch", 200*mbit)
	g.host("receiver1", "switch", 20*mbit)
	l := up(t, "repair", g.config())
	run := func(name string, params any) *experiment.Run {
		r := &experiment.Run{Scheme: "s", Config: *g.config(), Laws: []string{name}, At: []string{"switch"}, Params: map[string]any{name: params}}
		if err := testWorks.Check(r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	// limits returns the limits of the switch's queues, in bytes.
	limits := func() (of []uint32) {
		if err := l.withNetlink("switch", func(h *netlink.Handle) error {
			list, err := h.QdiscList(nil)
			for _, q := range list {
				if tbf, ok := q.(*netlink.Tbf); ok {
					of = append(of, tbf.Limit)
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return of
	}
	stop, err := l.Enforce(t.Context(), run("lossrepair", sed.LossRepairParams{Park: 100e3}), testWorks)
	if err != nil {
		t.Fatal(err)
	}
	tally := func() law.Tally {
		n, err := l.laws[0].Tally()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	// One transfer can end before its window overflows the buffer: cubic leaves slow start when the delay rises.
	err = dial(l, "sender1", "receiver1", 0, func(client, server *net.TCPConn) (err error) {
		for end := time.Now().Add(testnet.Patience); err == nil && tally()[law.Kept] == 0 && time.Now().Before(end); {
			err = send(client, server, 2_000_000)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	testnet.Until(t, "a repair is counted", func() bool { return tally()[law.Repairs] > 0 })
	if n := tally(); n[law.Kept] < n[law.Repairs] || n[law.InTime] > n[law.Repairs] || n[law.ParkingFails] != 0 {
		t.Errorf("counters that contradict each other, or a parking that fails: %v", n)
	}
	if values, trouble := l.lawTotals(); len(values) != 8 || len(trouble) != 0 {
		t.Errorf("%v, %v", values, trouble)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	before := limits()
	stop, err = l.Enforce(t.Context(), run("deeptail", droptail.DeepParams{More: 50e3}), testWorks)
	if err != nil {
		t.Fatal(err)
	}
	deep := limits()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	after := limits()
	if len(before) != 2 || len(deep) != 2 {
		t.Fatalf("%v, %v", before, deep)
	}
	for i := range before {
		if before[i] != 125_000 || deep[i] != 175_000 || after[i] != before[i] {
			t.Errorf("limits %v, with deeptail %v, then %v", before, deep, after)
		}
	}
}

// The paper's repair needs ACKs of the controller, which hosts of the lab do not send.
func TestRSED_Refuses(t *testing.T) {
	p := *sed.DefaultRepair()
	r := &experiment.Run{Scheme: "s", Config: *dumbbell(1, true).config(), Laws: []string{"rsed"}, At: []string{"switch"}, Params: map[string]any{"rsed": p}}
	if err := testWorks.Check(r); err == nil || !strings.Contains(err.Error(), "choose reinject") {
		t.Error(err)
	}
	p.Repair = sed.RepairReinject
	r.Params["rsed"] = p
	if err := testWorks.Check(r); err != nil {
		t.Error(err)
	}
}
