package controller

import (
	"slices"
	"testing"
	"time"

	"weir/bus"
	"weir/bus/pki"
	"weir/law"
)

// explained returns a reason.
type explained struct{ *ordered }

func (explained) Explain(b []byte) []byte { return append(b, "the backlog says so"...) }

func (k *busKit) operator() *bus.Conn {
	k.t.Helper()
	c, err := bus.Dial(bus.ClientConfig{URLs: []string{k.url}, Files: pki.In(k.enrol("operator/op"), "op")})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(c.Close)
	k.until("the operator is connected", c.Connected)
	return c
}

// An operator learns which report led to which grants, why, and which commands were sent.
func TestTrace(t *testing.T) {
	k := newBusKit(t)
	k.cfg.Version = "7.8"
	k.cfg.Laws = []Law{{Name: "answering", New: func() (law.Law, error) { return explained{&ordered{vms: map[law.VM]bool{}}}, nil }}}
	k.run()
	sw, h1 := k.agent("sw"), k.agent("h1")
	h1.hosts(t, 7, 1, 1, 5)
	var cause uint64
	k.until("a grant", func() bool {
		sw.report(t, 4321)
		select {
		case g := <-h1.grants:
			cause = g[0].Cause
			return true
		default:
			return false
		}
	})
	op := k.operator()
	c1 := pki.Identity{Role: pki.Controller, Name: "c1"}
	var holders []bus.Holder
	k.until("the controller is there", func() bool { // on a slow machine its heartbeat may be late, and it counts as gone
		var err error
		if holders, err = op.Controllers(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(holders) == 1 && holders[0].Name == "c1"
	})
	var list []Decision
	if err := op.Ask(t.Context(), c1, &bus.Question{What: bus.AskTrace, VM: 5, Last: 64}, &list); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(d Decision) bool { return d.Serial == cause })
	if i < 0 {
		t.Fatalf("decision %d is not among %+v", cause, list)
	}
	d := list[i]
	if d.Controller != "c1" || d.Run != holders[0].Run || d.Event != "telemetry" || d.Reporter != "sw" || d.Sequence == 0 || d.StampNs == 0 || d.Law != "answering" ||
		d.Why != "the backlog says so" || d.Grants != 2 || d.First[1] != (TracedGrant{Kind: "window", VM: 5, Value: 4321, Lease: time.Second}) {
		t.Errorf("%+v", d)
	}
	if d.CameNs <= 0 || d.BeganNs < d.CameNs || d.DecidedNs < d.BeganNs || len(d.FirstOrders) != 1 || d.FirstOrders[0].SentNs < d.DecidedNs {
		t.Errorf("the times do not follow one another: %+v", d)
	}
	if o := d.FirstOrders[0]; o.Agent != "h1" || o.Result != grantSent || o.Grants != 2 || o.Term == 0 || o.HeldNs <= 0 {
		t.Errorf("%+v", o)
	}
	if err := op.Ask(t.Context(), c1, &bus.Question{What: bus.AskTrace, VM: 6, Last: 64}, &list); err != nil || len(list) != 0 {
		t.Errorf("of another VM: %v, %+v", err, list)
	}
	var b Brief
	k.until("both agents are known", func() bool { // on a slow machine they were silent for too long
		sw.report(t, 4321)
		h1.hosts(t, 7, 1, 1, 5)
		if err := op.Ask(t.Context(), c1, &bus.Question{What: bus.AskStatus}, &b); err != nil {
			t.Fatal(err)
		}
		return len(b.Agents) == 2 && b.Agents[0].Commands
	})
	if b.Name != "c1" || b.Version != "7.8" || !slices.Equal(b.Laws, []string{"answering", "caps"}) {
		t.Errorf("%+v", b)
	}
}
