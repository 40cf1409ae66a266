package agentd

import (
	"net/netip"
	"testing"
	"time"

	"weir/deadline"
	"weir/law"
	"weir/law/flows"
	"weir/law/inventory"
	"weir/law/sed"
)

// fluid is a port of 1 Gbit/s that divides its rate by the windows that law/sed grants. Each flow of the VMs 1 and 2 is a liar's, which
// always sends. Those of VM 3 are honest.
type fluid struct {
	t     *testing.T
	d     *deadlines
	clock *fakeTime
	law   *sed.Law
	flows []*fluidFlow
	of    map[law.Flow]*fluidFlow
}

type fluidFlow struct {
	vm, n     int
	key       law.Flow
	left      float64 // of an honest message; bytes
	end       time.Duration
	met       bool
	sent      float64
	window    float64
	endless   bool
	again     func(f *fluidFlow) deadline.Declaration // that a liar declares every 5 ms
	lastSaid  time.Duration
	completed bool
}

const fluidRate = 1e9 / 8 * 0.949 // payload, bytes a second

func newFluid(t *testing.T, cfg Deadlines) *fluid {
	t.Helper()
	f := &fluid{t: t, of: map[law.Flow]*fluidFlow{}}
	f.d, f.clock = newDeclarers(cfg, 0)
	p := *sed.Default()
	p.First = sed.FirstOpen
	var err error
	if f.law, err = sed.New(p, "", 200e3); err != nil {
		t.Fatal(err)
	}
	f.step(&inventory.Switch{At: 1, Ports: []inventory.Port{{N: 1, Rate: 1e9}}})
	has := &inventory.Host{At: 1}
	for n := 1; n <= 3; n++ {
		has.VMs = append(has.VMs, inventory.VM{Number: law.VM(n), Addresses: []netip.Prefix{netip.PrefixFrom(of(n, 0, 0, 0).Source.Addr(), 32)}})
	}
	f.step(has)
	return f
}

func (f *fluid) step(e law.Event) {
	for _, a := range f.law.Step(f.clock.now, e, nil) {
		g := a.(law.Grant)
		if one := f.of[g.Key.Flow]; one != nil {
			one.window = float64(g.Value)
		}
	}
}

func (f *fluid) add(one *fluidFlow) {
	what := of(one.vm, one.n, 0, 0)
	one.key, one.window = flowOf(&what), 1<<26
	f.flows, f.of[one.key] = append(f.flows, one), one
	f.step(&flows.Began{At: law.Port{Switch: 1, N: 1}, Flow: one.key})
}

// deliver takes the declarations through the agent to the law.
func (f *fluid) deliver() {
	for all := f.d.message(); all != nil; all = f.d.message() {
		for _, m := range all {
			f.step(&flows.Declared{Flow: m.GetFlow().Law(), Left: time.Duration(m.GetWithinNs()), Bytes: m.GetSizeBytes(), Value: m.GetValue(), Number: m.GetNumber()})
		}
	}
}

// run runs for a time, and returns how many honest messages were in time.
func (f *fluid) run(lasts time.Duration) (met int) {
	const dt = 100 * time.Microsecond
	f.step(&flows.Congested{At: law.Port{Switch: 1, N: 1}, Now: true})
	for tick := 0; tick < int(lasts/dt); tick++ {
		sum := 0.0
		for _, one := range f.flows {
			if !one.completed {
				sum += one.window
			}
			if one.again != nil && f.clock.now-one.lastSaid >= 5*time.Millisecond {
				one.lastSaid = f.clock.now
				_, _ = say(f.d, one.vm, one.again(one))
			}
		}
		f.deliver()
		f.clock.now += dt
		e := &flows.Progress{At: 1, Congested: []uint32{1}}
		for _, one := range f.flows {
			if one.completed || sum == 0 {
				continue
			}
			one.sent += min(one.window/200e-6, fluidRate*one.window/sum) * dt.Seconds()
			if !one.endless && one.sent >= one.left {
				one.completed, one.met = true, f.clock.now <= one.end
				f.step(&flows.Ended{At: law.Port{Switch: 1, N: 1}, Flow: one.key})
			}
			e.Sent = append(e.Sent, flows.Sent{Port: 1, Flow: one.key, Bytes: uint64(one.sent)})
		}
		if tick%10 == 9 {
			f.step(e)
		}
	}
	for _, one := range f.flows {
		if one.met {
			met++
		}
	}
	return met
}

// attack has VM 3 send three messages of 0.75 MB in 40 ms, 450 Mbit/s, next to 40 flows of one tenant that declare every 5 ms. It returns how
// many of the three are in time.
func attack(t *testing.T, cfg Deadlines, lie func(f *fluidFlow) deadline.Declaration) int {
	f := newFluid(t, cfg)
	for vm := 1; vm <= 2 && lie != nil; vm++ {
		for n := range 20 {
			f.add(&fluidFlow{vm: vm, n: n, endless: true, again: lie})
		}
	}
	for n := range 3 {
		f.add(&fluidFlow{vm: 3, n: n, left: 750e3, end: f.clock.now + 40*time.Millisecond})
		if _, why := say(f.d, 3, of(3, n, 40*time.Millisecond, 750e3)); why != "" {
			t.Fatal(why)
		}
	}
	return f.run(60 * time.Millisecond)
}

// A tenant that declares impossible or false deadlines, or very many, takes nothing from another: all of the other's messages are in time,
// as without it. Without quotas most of them are late.
func TestDeadlines_Attack(t *testing.T) {
	cfg := Deadlines{VM: Quota{Rate: 500, Live: 256, Demand: 460e6}, Tenant: Quota{Rate: 1000, Live: 512, Demand: 200e6}}
	if met := attack(t, cfg, nil); met != 3 {
		t.Fatalf("without an attack %d of 3 are in time", met)
	}
	for name, lie := range map[string]func(f *fluidFlow) deadline.Declaration{
		"impossible": func(f *fluidFlow) deadline.Declaration { return of(f.vm, f.n, 10*time.Millisecond, 1e9) },
		"false":      func(f *fluidFlow) deadline.Declaration { return of(f.vm, f.n, 6*time.Millisecond, 100e3) },
		"small, and worth it": func(f *fluidFlow) deadline.Declaration {
			d := of(f.vm, f.n, 6*time.Millisecond, 100e3)
			d.Value = deadline.MaxValue
			return d
		},
		"of unknown size": func(f *fluidFlow) deadline.Declaration { return of(f.vm, f.n, 6*time.Millisecond, 0) },
	} {
		open := cfg
		open.NoQuotas = true
		with, without := attack(t, cfg, lie), attack(t, open, lie)
		t.Logf("%s: %d of 3 in time with quotas, %d without", name, with, without)
		if with != 3 {
			t.Errorf("%s: with quotas %d of 3 are in time", name, with)
		}
		if name != "impossible" && without > 1 { // the law gives those up itself
			t.Errorf("%s: without quotas %d of 3 are in time: the test shows no harm", name, without)
		}
	}
}
