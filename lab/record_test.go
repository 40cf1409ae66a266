package lab

import (
	"net"
	"path/filepath"
	"testing"

	recording "weir/controller/record"
	"weir/datapath/testnet"
	"weir/experiment"
	"weir/internal/testroot"
	"weir/law"
	"weir/law/sicc"
)

// The events that the lab's controller recorded, fed to the law alone, give the actions that the controller issued, to the byte.
func TestControlled_Recorded(t *testing.T) {
	testroot.Need(t, "namespaces")
	path := filepath.Join(t.TempDir(), "sicc")
	g := dumbbell(3, true)
	l, err := Up(t.Context(), testName("record"), g.config(), Options{Owned: true, Controller: testController(t), Agent: testAgent(t), Record: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	p := *sicc.Default()
	p.Interval, p.OffRule, p.OnFraction = 2e6, sicc.OffOr, 0.05 // one new flow is predicted to fill a twentieth of the buffer: an incast
	r := &experiment.Run{Scheme: "s", Config: *g.config(), Laws: []string{"sicc"}, At: []string{"switch"}, Params: map[string]any{"sicc": p}}
	stop, err := l.Enforce(t.Context(), r, Laws{"sicc": Controlled(sicc.Spec())})
	if err != nil {
		t.Fatal(err)
	}
	var tally law.Tally
	testnet.Until(t, "the law limits and releases senders", func() bool {
		for _, sender := range []string{"sender1", "sender2", "sender3"} {
			if err := dial(l, sender, "receiver1", 0, func(client, server *net.TCPConn) error { return send(client, server, 100_000) }); err != nil {
				t.Fatal(err)
			}
		}
		tally, err = l.laws[0].Tally()
		return err == nil && tally["grants"] >= 12
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	rec, err := recording.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	res, err := recording.Replay(rec, recording.Options{Specs: law.Specs{sicc.Spec()}})
	if err != nil {
		t.Fatal(err)
	}
	if !res.Same() || !res.Ended || len(res.Laws) != 1 {
		t.Fatalf("%+v", res)
	}
	issued, sent := res.Laws[0].Recorded, tally["grants"]+tally["grants_nowhere"]+tally["grants_not_held"]+tally["grants_failed"]
	if n := issued.Grants["window"] + issued.Releases; n < sent || issued.Releases == 0 || issued.VMs == 0 {
		t.Errorf("%d grants are recorded and the controller sent %d: %+v", n, sent, issued)
	}
	t.Logf("%d events, %d grants, %d releases, %d VMs", res.Entries, issued.Grants["window"], issued.Releases, issued.VMs)
}
