package gcc

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/law"
	"weir/law/inventory"
	"weir/law/lawtest"
	"weir/law/limiter"
	"weir/law/telemetry"
)

const mbit = 1e6

// hostScript drives the half at a host.
type hostScript struct {
	*lawtest.Host
	h *Host
}

func newHostScript(t testing.TB, uplink law.Rate, vms int, change func(*Config)) *hostScript {
	t.Helper()
	p := Default()
	if change != nil {
		change(p)
	}
	h, err := NewHost(*p)
	if err != nil {
		t.Fatal(err)
	}
	twin, err := NewHost(*p)
	if err != nil {
		t.Fatal(err)
	}
	return &hostScript{lawtest.NewHost(t, h, twin, uplink, vms), h}
}

// rate is R of a VM in Mbit/s.
func (s *hostScript) rate(vm law.VM) float64 { return s.h.Of(vm).Rate / mbit }

func (s *hostScript) expect(what string, vm law.VM, want float64) {
	s.T.Helper()
	if got := s.rate(vm); math.Abs(got-want) > 0.02 {
		s.T.Errorf("%s: VM %d has %.3f Mbit/s, want %.3f", what, vm, got, want)
	}
}

// could is how many packets a gigabit sends in 5 ms.
const could = 1e9 * 0.005 / 8 / 1500

// With messages that are late by three intervals each step is a quarter, and each time four times as long.
func TestHost_Delay(t *testing.T) {
	s := newHostScript(t, 1e9, 1, func(p *Config) { p.Delay, p.Gain = law.Duration(15*ms), 0.4 })
	s.Send(1)
	s.Marks(1, could/4)
	s.expect("a quarter is marked", 1, 1000*(1-0.1/4))
	s.Until(39 * ms)
	s.expect("before the timeout", 1, 975)
	s.Until(40 * ms)
	s.expect("after it", 1, 975+0.325/4)
	s.Until(100 * ms)
	s.expect("60 ms later", 1, 975+0.325/4+78.0/4)
	for want, change := range map[string]func(*Config){
		"delay: at most 1000": func(p *Config) { p.Delay = 1001 * p.Interval },
		"delay: the law of":   func(p *Config) { p.Delay, p.Variant = 1, OVS },
		"increase":            func(p *Config) { p.Delay, p.Gain, p.Increase = 1000*p.Interval, 0.4, 999 },
		"gain: with a delay":  func(p *Config) { p.Delay, p.Gain = 1, 0.41 },
	} {
		p := Default()
		change(p)
		if err := p.Check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The only active VM has the uplink without a limit. Two share it. Marks take from a rate in proportion to it; silence returns it,
// slowly first and fast after 200 ms.
func TestHost_Paper(t *testing.T) {
	s := newHostScript(t, 1e9, 2, nil)
	if len(s.Got) > 0 || s.Law.Wake() != 0 {
		t.Errorf("before any packet: %v, wake %v", s.Got, s.Law.Wake())
	}
	s.Send(1)
	s.expect("alone", 1, 1000)
	if len(s.Got) > 0 {
		t.Errorf("alone: %+v", s.Got)
	}
	s.Marks(1, could/4)
	s.expect("a quarter is marked", 1, 1000*(1-0.8/4))
	if g := s.Got[1]; g.Value < 799e6 || g.Value > 801e6 || g.Lease != time.Second {
		t.Errorf("granted %+v", g)
	}
	s.Until(9 * ms)
	s.expect("before the timeout", 1, 800)
	s.Until(10 * ms)
	s.expect("after it", 1, 800+0.325)
	s.Until(110 * ms)
	s.expect("100 ms later", 1, 800+0.325+130)
	s.Marks(1, 10*could)
	s.expect("more marks than packets", 1, (800+0.325+130)*0.2)
	s.Until(310 * ms)
	slow := (800+0.325+130)*0.2 + 760*0.325 + 0.325 + 2.3
	s.expect("the last slow period", 1, slow)
	s.Until(320 * ms)
	s.expect("fast", 1, slow+40*2.625)
	s.Until(500 * ms)
	s.expect("at its share", 1, 1000)
	if g := s.Got[1]; g.Lease != 0 {
		t.Errorf("not released: %+v", g)
	}
	s.Send(2)
	s.expect("two", 1, 500)
	s.expect("two", 2, 500)
	s.Until(600 * ms)
	s.Send(1)
	s.Until(1499 * ms)
	s.expect("before the inactivity of VM 2", 1, 500)
	s.Until(1500 * ms)
	if s.h.Of(2).Active || s.Got[2].Lease != 0 {
		t.Errorf("VM 2 is active, or limited: %+v", s.Got[2])
	}
	s.Until(1510 * ms)
	if s.rate(1) <= 500 || s.rate(1) >= 1000 {
		t.Errorf("VM 1 has %.0f Mbit/s: want it to rise", s.rate(1))
	}
}

// GS-2: rates have no rounding. The printed (rate >> 3) of Mbit/s gives 328 of 333 Mbit/s.
func TestGS2_NoRounding(t *testing.T) {
	s := newHostScript(t, 1e9, 3, nil)
	s.Send(1, 2, 3)
	if got := s.Got[1].Value; got != 333333333 {
		t.Errorf("%d bit/s", got)
	}
	if printed := (333 >> 3) * 8; printed != 328 {
		t.Errorf("printed: %d Mbit/s", printed)
	}
}

// GS-3: a message without marks is no congestion. With the printed test (>= 0) such messages keep a rate from rising.
func TestGS3_ZeroMarks(t *testing.T) {
	for _, printed := range []bool{false, true} {
		s := newHostScript(t, 1e9, 1, nil)
		s.Law = s.h
		s.Send(1)
		s.Marks(1, could/2)
		for range 20 {
			s.Until(s.Now + 5*ms)
			if printed { // what ">= 0" does
				s.h.Of(1).Congested, s.h.Of(1).Heard = true, s.Now
			}
			s.Marks(1, 0)
		}
		if printed {
			s.expect("printed", 1, 600)
		} else {
			s.expect("ours", 1, 600+361*0.325)
		}
	}
}

// GS-4: the first message counts as one interval. Printed, it is divided by the time since the system began. Two messages that come
// together count as two intervals: printed, the second is divided by the microsecond between them.
func TestGS4_FirstMessage(t *testing.T) {
	s := newHostScript(t, 1e9, 1, nil)
	s.Until(10 * time.Second)
	s.Send(1)
	s.Marks(1, could/4)
	s.expect("ours", 1, 800)
	printed := func(dt time.Duration) float64 { return 1000 * (1 - 0.8*min(1, could/4/could*0.005/dt.Seconds())) }
	if got := printed(10 * time.Second); got < 999 {
		t.Errorf("printed: %.1f Mbit/s", got)
	}
	s.Until(s.Now + time.Microsecond)
	s.Marks(1, could/100)
	s.expect("a microsecond later", 1, 800*(1-0.8/100))
	if got := printed(time.Microsecond); got > 201 {
		t.Errorf("printed, a microsecond later: %.1f Mbit/s", got)
	}
}

// GS-6: the listings have another law, without an integrator. A rate returns to the share of this host as soon as marks stop. A
// quarter of the link needs three quarters of the packets marked for good.
func TestGS6_ListingsHaveNoIntegrator(t *testing.T) {
	s := newHostScript(t, 1e9, 1, func(p *Config) { p.Variant = OVS })
	s.Send(1)
	for range 200 {
		s.Until(s.Now + 5*ms)
		s.Marks(1, 75)
		s.Send(1)
	}
	if got := s.rate(1); math.Abs(got-250) > 1 {
		t.Errorf("three quarters marked: %.1f Mbit/s, want 250", got)
	}
	for range 200 {
		s.Until(s.Now + 5*ms)
		s.Send(1)
	}
	if got := s.rate(1); got < 999 {
		t.Errorf("no marks: %.1f Mbit/s, want the whole uplink", got)
	}
}

// GO-1: a VM that was never seen is not active. The listing counts it, and the others get less.
func TestGO1_NeverSeen(t *testing.T) {
	s := newHostScript(t, 1e9, 4, func(p *Config) { p.Variant = OVS })
	s.Send(1, 2)
	s.expect("two of four send", 1, 500)
	if printed := 1000.0 / 4; printed == s.rate(1) {
		t.Error("as printed")
	}
}

// GO-2: the fraction is of an interval. Over the life of a flow, as printed, it would react to nothing after a while.
func TestGO2_FractionOfAnInterval(t *testing.T) {
	s := newHostScript(t, 1e9, 1, func(p *Config) { p.Variant = OVS })
	out, marked := 0.0, 0.0
	for range 2000 {
		s.Until(s.Now + 5*ms)
		s.Send(1)
		out += 100
	}
	for range 100 {
		s.Until(s.Now + 5*ms)
		s.Marks(1, 100)
		s.Send(1)
		out, marked = out+100, marked+100
	}
	if got := s.rate(1); got > 15 {
		t.Errorf("all packets of 100 intervals are marked: %.1f Mbit/s", got)
	}
	if printed := 1000 * (1 - marked/out); printed < 900 {
		t.Errorf("printed: %.1f Mbit/s", printed)
	}
}

// GO-6: a VM may get a share of marks that is above its own packets. The fraction is at most 1. The printed test, out_pkts >= marks,
// takes such a message for silence, and the VM keeps the whole uplink.
func TestGO6_FractionIsAtMostOne(t *testing.T) {
	const sent, marked = 100.0, 700.0
	s := newHostScript(t, 1e9, 1, func(p *Config) { p.Variant = OVS })
	s.Send(1)
	printed := 0.0
	for range 40 {
		s.Until(s.Now + 5*ms)
		s.Marks(1, marked)
		s.Send(1)
		if sent >= marked {
			printed += (marked/sent - printed) / 16
		} else {
			printed -= printed / 16
		}
	}
	if a := s.h.Of(1).State.alpha; a > 1 || a < 0.9 {
		t.Errorf("alpha is %v", a)
	}
	if got := s.rate(1); got < 70 || got > 80 {
		t.Errorf("%.1f Mbit/s, want 70 to 80", got)
	}
	if rate := 1000 * (1 - printed); rate != 1000 {
		t.Errorf("printed: %.1f Mbit/s, want the whole uplink", rate)
	}
}

// The published code takes 5 Mbit/s for each mark, unless little would remain. Silence returns it to half of what it was and a
// tenth of the share, once. There it would stay: here it rises on.
func TestHost_Code(t *testing.T) {
	s := newHostScript(t, 1e9, 1, func(p *Config) { p.Variant, p.Increase = Code, 1e6 })
	s.Send(1)
	s.Marks(1, 100)
	s.expect("100 marks", 1, 500)
	s.Until(ms)
	s.Marks(1, 50)
	s.expect("fewer marks, soon", 1, 500)
	s.Until(5 * ms)
	s.Marks(1, 20)
	s.expect("3 ms later", 1, 400)
	s.Until(15 * ms)
	s.expect("10 ms after the last mark", 1, (400.0+1000)/2+100)
	s.Until(20 * ms)
	s.expect("it rises on", 1, 820)
	s.Until(80 * ms)
	s.expect("at its share", 1, 1000)
	s.Marks(1, 989)
	s.expect("the largest step", 1, 10)
	s.Marks(1, 2000)
	s.expect("too little would remain", 1, 10)
	s = newHostScript(t, 1e9, 1, func(p *Config) { p.Variant = Code })
	s.Send(1)
	s.Marks(1, 50)
	s.Until(ms)
	s.Marks(1, 50)
	s.expect("as many marks, soon", 1, 500)
}

// Rates converge to weights, and not below guarantees.
func TestHost_WeightsAndGuarantees(t *testing.T) {
	s := newHostScript(t, 1e9, 2, nil)
	s.Step(&inventory.Host{At: 1, Rate: 1e9, VMs: []inventory.VM{
		{Number: 1, Guarantee: inventory.Guarantee{Weight: 3}}, {Number: 2, Guarantee: inventory.Guarantee{Rate: 200e6, Weight: 1}},
	}})
	s.Send(1, 2)
	s.expect("share", 1, 750)
	s.expect("share", 2, 250)
	for range 100 {
		s.Marks(1, could)
		s.Marks(2, could)
	}
	s.expect("congested", 1, 10)
	s.expect("guaranteed", 2, 200)
}

// VMs that are not in the list any more have no rate, others keep theirs.
func TestHost_List(t *testing.T) {
	s := newHostScript(t, 1e9, 2, nil)
	s.Send(1, 2)
	s.Marks(1, could)
	s.Step(&inventory.Host{At: 1, Rate: 1e9, VMs: []inventory.VM{{Number: 1}, {Number: 9}}})
	s.expect("kept", 1, 500*0.2)
	s.Marks(2, 5)
	if c := s.h.Counts(); c.Unknown != 1 {
		t.Errorf("%+v", c)
	}
	many := &inventory.Host{At: 1, Rate: 1e9}
	for n := range limiter.MaxVMs + 1 {
		many.VMs = append(many.VMs, inventory.VM{Number: law.VM(n + 1)})
	}
	s.Step(many)
	if n := len(s.h.Guests()); n != limiter.MaxVMs || s.h.Counts().TooMany != 1 {
		t.Errorf("%d VMs, %+v", n, s.h.Counts())
	}
	s.Step(&inventory.Host{At: 1})
	if len(s.h.Guests()) != 0 || s.Law.Wake() != 0 {
		t.Errorf("%d VMs, wake %v", len(s.h.Guests()), s.Law.Wake())
	}
}

// Without the uplink's rate nothing is limited.
func TestHost_NoRate(t *testing.T) {
	s := newHostScript(t, 0, 2, nil)
	s.Send(1, 2)
	s.Marks(1, 1000)
	if len(s.Got) > 0 {
		t.Errorf("%+v", s.Got)
	}
}

// A rate that stays is granted again before its lease ends.
func TestHost_Renews(t *testing.T) {
	s := newHostScript(t, 1e9, 2, func(p *Config) { p.Inactivity = 60e9 })
	s.Send(1, 2)
	last, times := time.Duration(0), 0
	for s.Now < 5*time.Second {
		w := s.Law.Wake()
		s.Until(w)
		if n := s.At[1]; n != last {
			if n-last > s.Got[1].Lease/2 {
				t.Fatalf("granted at %v and then at %v", last, n)
			}
			last = n
			times++
		}
	}
	if times != 16 { // a third of a second apart: law.Renewal
		t.Errorf("%d grants in 5 s", times)
	}
}

func TestHost_KeepsNothingBorrowed(t *testing.T) {
	lawtest.Keeps(t, func() law.Law {
		h, err := NewHost(*Default())
		if err != nil {
			t.Fatal(err)
		}
		return h
	}, drawnHost, drawnSent, drawnMarked)
}

func drawnHost(t *rapid.T) law.Event {
	e := &inventory.Host{At: 1, Rate: law.Rate(rapid.SampledFrom([]int64{0, 1e9, 1e8}).Draw(t, "uplink"))}
	for vm := range law.VM(4) {
		if rapid.IntRange(0, 3).Draw(t, "there") > 0 {
			e.VMs = append(e.VMs, inventory.VM{Number: vm + 1, Guarantee: inventory.Guarantee{
				Weight: rapid.Uint32Range(0, 3).Draw(t, "weight"), Rate: law.Rate(rapid.SampledFrom([]int64{0, 0, 3e8, 6e8}).Draw(t, "least")),
			}})
		}
	}
	return e
}

func drawnSent(t *rapid.T) law.Event {
	e := &telemetry.Sent{T: 5 * ms}
	for vm := range law.VM(5) {
		if rapid.Bool().Draw(t, "sends") {
			e.VMs = append(e.VMs, telemetry.VMSent{VM: vm + 1, Packets: rapid.Uint64Range(0, 400).Draw(t, "packets")})
		}
	}
	return e
}

func drawnMarked(t *rapid.T) law.Event {
	return &telemetry.Marked{VM: law.VM(rapid.IntRange(1, 5).Draw(t, "vm")), Marks: rapid.Uint64Range(0, 500*telemetry.OneMark).Draw(t, "marks")}
}
