package lab

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/experiment"
	"weir/internal/testroot"
	"weir/law"
	fairqlaw "weir/law/fairq"
)

// hardwareNet is a switch with three guests on links that the model carries. The receiver's is slower, so what the senders
// send waits in its queue.
func hardwareNet() *graphBuilder {
	g := &graphBuilder{kind: "rtl"}
	g.sw("switch")
	g.host("sender1", "switch", 6*mbit)
	g.host("sender2", "switch", 6*mbit)
	g.host("receiver1", "switch", 3*mbit)
	return g
}

func hardwareRun(g *graphBuilder, edit func(p *fairqlaw.Params)) *experiment.Run {
	p := *fairqlaw.Default()
	p.FairSwitch, p.Count, p.Scale, p.TargetFraction, p.Interval = true, "handshake", "shim", 0.5, 1536e3
	if edit != nil {
		edit(&p)
	}
	return &experiment.Run{Scheme: "s", Config: *g.config(), Laws: []string{"fairq"}, At: []string{"switch"}, Params: map[string]any{"fairq": p}}
}

// onHardware skips the test where the program was not built: it needs Verilator, and a minute.
func onHardware(t *testing.T) *graphBuilder {
	t.Helper()
	testroot.Need(t, "makes network namespaces")
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", root+string(os.PathListSeparator)+os.Getenv("PATH"))
	if _, err := findHardware(); err != nil {
		t.Skip("there is no Verilated FairSwitch here: ", err)
	}
	return hardwareNet()
}

// Guests reach each other through the block. While a connection is open its queue counts a flow and grants a window, and
// segments are rewritten. Nothing stays on the host.
func TestFairSwitch_CarriesTCP(t *testing.T) {
	g := onHardware(t)
	before := hostState(t)
	l := up(t, "rtl", g.config())
	for _, to := range []string{"sender2", "receiver1"} {
		if err := talk(l, "sender1", to, 0); err != nil {
			t.Error(err)
		}
	}
	r := hardwareRun(g, nil)
	if err := testWorks.Check(r); err != nil {
		t.Fatal(err)
	}
	stop, err := l.Enforce(t.Context(), r, testWorks)
	if err != nil {
		t.Fatal(err)
	}
	at := l.laws[0].Attached.(*hardwareLaw)
	flows := func() (flows, window float64) {
		values, err := at.Sample("switch->receiver1")
		if err != nil || len(values) < 2 {
			t.Fatalf("sample: %v, %v", values, err)
		}
		return values[0].Value, values[1].Value
	}
	err = dial(l, "sender1", "receiver1", 0, func(client, server *net.TCPConn) error {
		if err := send(client, server, 200_000); err != nil {
			return err
		}
		if n, window := flows(); n != 1 || window < 1461 {
			t.Errorf("with one connection: %v flows, a window of %v", n, window)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	tally, err := at.Tally()
	if err != nil || tally[fairqlaw.Rewritten] == 0 || tally[fairqlaw.Acks] < 200_000/1460 {
		t.Errorf("counters: %v, %v", tally, err)
	}
	s, err := l.hardwareStats("switch")
	if err != nil || s.Received == 0 || s.Unknown+s.Overflows != 0 || s.Ports[2].Sent < 200_000/1460 || s.Ports[2].Peak < 1514 || s.Ports[2].Failed != 0 {
		t.Errorf("the switch: %+v, %v", s, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := talk(l, "sender2", "sender1", 0); err != nil {
		t.Errorf("without a law: %v", err)
	}
	if err := l.Down(); err != nil {
		t.Error(err)
	}
	sameHost(t, before, "after Down")
}

// Parameters and networks that the hardware does not have are refused before anything is built.
func TestFairSwitch_Refuses(t *testing.T) {
	for want, edit := range map[string]func(p *fairqlaw.Params){
		"":                             nil,
		"set fairswitch: true":         func(p *fairqlaw.Params) { p.FairSwitch = false },
		"scale: shim":                  func(p *fairqlaw.Params) { p.Scale = "learn" },
		"no edge, promises":            func(p *fairqlaw.Params) { p.Credits = true },
		"is no right shift":            func(p *fairqlaw.Params) { p.TargetFraction = 0.3 },
		"interval 1ms is 1250 cycles":  func(p *fairqlaw.Params) { p.Interval = 1e6 },
		"interval 60ms is 75000 cycle": func(p *fairqlaw.Params) { p.Interval = 60e6 },
		"idle 3600s is 2343750":        func(p *fairqlaw.Params) { p.Idle = 3600e9 },
		"idle 1ms is 0 samples":        func(p *fairqlaw.Params) { p.Idle = 1e6 },
		"min_window 70000 B":           func(p *fairqlaw.Params) { p.MinWindow = 70_000 },
	} {
		err := testWorks.Check(hardwareRun(hardwareNet(), edit))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("want %q, have %v", want, err)
		}
	}
	deep := hardwareNet()
	deep.Links[2].Buffer = law.Limit{N: 4e6}
	if err := testWorks.Check(hardwareRun(deep, nil)); err == nil || !strings.Contains(err.Error(), "a buffer of 4MB is above the 2097144 B") {
		t.Errorf("a buffer of 4 MB: %v", err)
	}
	wide, fast := hardwareNet(), &graphBuilder{kind: "rtl"}
	for range 6 {
		wide.host("more"+string(rune('a'+len(wide.config().Graph.Nodes))), "switch", 1*mbit)
	}
	fast.sw("switch")
	fast.host("sender1", "switch", 40*mbit)
	fast.host("receiver1", "switch", 40*mbit)
	for want, g := range map[string]*graphBuilder{"has 9 ports": wide, "80 Mbit/s together": fast} {
		p, err := newPlan(g.config())
		if err != nil {
			t.Fatal(err)
		}
		if err := newHardware(1).check(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, have %v", want, err)
		}
	}
}

// Registers of the paper's values at a time_scale of 32, with the model's clock of 1.25 MHz.
func TestFairSwitch_Registers(t *testing.T) {
	h, err := fairQHardware(hardwareRun(hardwareNet(), func(p *fairqlaw.Params) { p.Idle = 32e9 }), "fairq")
	want := map[uint32]uint32{0x04: 4, 0x08: 1920, 0x0c: 10, 0x10: 1, 0x18: 1461, 0x1c: 0, 0x20: 1460, 0x24: 20833}
	if err != nil || !maps.Equal(h.Registers, want) {
		t.Errorf("%v, %v", h.Registers, err)
	}
	if v := h.Sample(3, 4000); len(v) != 3 || v[0] != (law.Value{Metric: "flows", Value: 3}) {
		t.Errorf("sample: %v", v)
	}
}

// A model that is over 1 ms late, in the experiment's time, makes the run void.
func TestFairSwitch_LateRunsAreVoid(t *testing.T) {
	s := &hardwareStats{LagMost: 32 * time.Millisecond}
	if words := s.trouble(32); len(words) != 0 {
		t.Errorf("at the limit: %v", words)
	}
	s.LagMost += 32
	if words := s.trouble(32); len(words) != 1 || !strings.HasSuffix(words[0], "1ms is the limit: this run is void") {
		t.Errorf("behind it: %v", words)
	}
	s = &hardwareStats{LagMost: 120 * time.Millisecond, Rebased: 3}
	if words := s.trouble(160); len(words) != 1 || !strings.HasSuffix(words[0], "3 stalls: this run is void") {
		t.Errorf("with time left out: %v", words)
	}
}
