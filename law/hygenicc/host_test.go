package hygenicc

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/law"
	"weir/law/inventory"
	"weir/law/lawtest"
	"weir/law/telemetry"
)

const (
	mbit = 1e6
	ms   = time.Millisecond
)

// script drives the half at the host that sends.
type script struct {
	*lawtest.Host
	h *Host
}

func newScript(t testing.TB, vms int, change func(*Config)) *script {
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
	return &script{lawtest.NewHost(t, h, twin, 1e9, vms), h}
}

func (s *script) expect(what string, want float64) {
	s.T.Helper()
	if got := s.h.Of(1).Rate / mbit; math.Abs(got-want) > 1e-6 {
		s.T.Errorf("%s: VM 1 has %.3f Mbit/s, want %.3f", what, got, want)
	}
}

// A message takes 5 Mbit/s for each mark. It counts if its marks are not fewer than the last ones, or 3 ms have passed. The rate must be
// above 10 Mbit/s and 1 for each mark.
func TestHost_Messages(t *testing.T) {
	s := newScript(t, 1, func(p *Config) { p.Timeout = law.Duration(10 * ms) })
	s.Send(1)
	s.expect("alone", 1000)
	s.Marks(1, 11)
	s.expect("11 marks", 945)
	s.Until(ms)
	s.Marks(1, 10)
	s.expect("fewer, soon", 945)
	s.Marks(1, 10)
	s.expect("not fewer than the last ones", 895)
	s.Until(4 * ms)
	s.Marks(1, 2)
	s.expect("fewer, after 3 ms", 885)
	s.Marks(1, 875)
	s.expect("too little would remain", 885)
	s.Until(8 * ms)
	s.Marks(1, 874)
	s.expect("it falls to the least rate", 10)
}

// A mark in a reserved bit takes 1 Mbit/s.
func TestHost_Bits(t *testing.T) {
	s := newScript(t, 1, func(p *Config) { p.Feedback = Bit })
	s.Send(1)
	for range 30 {
		s.Marks(1, 1)
	}
	s.expect("30 bits", 970)
}

// After 2 ms without marks a rate gets half of what it lost, and a tenth of the share. The published code ends there: the rate stays
// below its share for good. Ours rises on.
func TestHost_RisesToItsShare(t *testing.T) {
	s := newScript(t, 1, nil)
	s.Send(1)
	s.Marks(1, 100)
	s.expect("100 marks", 500)
	s.Until(3 * ms / 2)
	s.expect("before the timeout", 500)
	s.Until(2 * ms)
	printed := (500.0+1000)/2 + 100
	s.expect("after it", printed)
	s.Until(12 * ms)
	s.expect("10 ms later", printed+20)
	s.Until(200 * ms)
	s.expect("its share", 1000)
	if printed >= 1000 {
		t.Error("the printed law returns to the share, too")
	}
}

// With the variant proportional a message takes gain times its part of what the uplink could have sent in an interval, 41.7 packets in
// 500 us. After the timeout the rate rises by increase each period, and later by fast_increase.
func TestHost_Proportional(t *testing.T) {
	s := newScript(t, 1, func(p *Config) {
		p.Variant, p.Gain, p.FastAfter, p.FastIncrease = Proportional, 0.5, law.Duration(10*ms), 8e6
	})
	s.Send(1)
	s.Marks(1, 1000)
	s.expect("more marks than packets", 500)
	s.Marks(1, 25)
	s.expect("25 marks", 350)
	s.Until(3 * ms / 2)
	s.expect("before the timeout", 350)
	s.Until(2 * ms)
	s.expect("after it", 351)
	s.Until(9 * ms)
	s.expect("7 ms later", 365)
	s.Until(11 * ms)
	s.expect("after fast_after", 366+3*8)
	s.Until(60 * ms)
	s.expect("its share", 1000)
}

// The rates equal those of a model that, for each question, goes through all periods from the beginning.
func TestHost_Model(t *testing.T) {
	tb := t
	rapid.Check(t, func(t *rapid.T) {
		feedback := rapid.SampledFrom([]string{Bit, Message}).Draw(t, "feedback")
		s := newScript(tb, 3, func(p *Config) { p.Feedback, p.Inactivity = feedback, law.Duration(20*ms) })
		m := model{step: 5}
		if feedback == Bit {
			m.step = 1
		}
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			s.Until(s.Now + time.Duration(rapid.IntRange(1, 8000).Draw(t, "us"))*time.Microsecond)
			vm := law.VM(rapid.IntRange(1, 3).Draw(t, "vm"))
			marks := 0.0
			if rapid.Bool().Draw(t, "sends") {
				s.Send(vm)
			} else {
				n := rapid.Uint64Range(1, 30).Draw(t, "marks")
				marks = float64(n)
				s.Marks(vm, marks)
			}
			m.events = append(m.events, modelEvent{s.Now, int(vm) - 1, marks})
			for vm, v := range m.after() {
				g := s.h.Of(law.VM(vm + 1))
				if g.Active != v.active || v.active && math.Abs(g.Rate/mbit-v.rate) > 1e-6 {
					t.Fatalf("at %v VM %d has %v (%v), want %v (%v)", s.Now, vm+1, g.Rate/mbit, g.Active, v.rate, v.active)
				}
			}
		}
	})
}

// model is three VMs with a gigabit, rates in Mbit/s, times in periods of 500 us.
type model struct {
	step   float64
	events []modelEvent
}

type modelEvent struct {
	at    time.Duration
	vm    int
	marks float64 // 0: the VM sent
}

type modelVM struct {
	active, congested  bool
	rate, before, last float64
	sent, heard        time.Duration
}

func (m *model) after() [3]modelVM {
	var vms [3]modelVM
	share := func() float64 {
		n := 0.0
		for _, v := range vms {
			if v.active {
				n++
			}
		}
		return 1000 / n
	}
	period := 500 * time.Microsecond
	next := period
	for _, e := range m.events {
		for ; next <= e.at; next += period {
			for i := range vms {
				if vms[i].active && next-vms[i].sent >= 20*ms {
					vms[i].active = false
				}
			}
			for i := range vms {
				v := &vms[i]
				switch {
				case !v.active:
				case v.congested && next-v.heard >= 2*ms:
					v.congested = false
					v.rate = math.Min(share(), v.rate/2+v.before/2+share()/10)
				case !v.congested:
					v.rate = math.Min(share(), v.rate+1)
				}
			}
		}
		v := &vms[e.vm]
		switch {
		case e.marks == 0 && !v.active:
			*v = modelVM{active: true, sent: e.at, heard: e.at, rate: 1e9}
			for i := range vms {
				vms[i].rate = math.Min(vms[i].rate, share())
			}
		case e.marks == 0:
			v.sent = e.at
		case v.active:
			if !v.congested {
				v.before = v.rate
			}
			if v.rate > 10+e.marks && (e.marks >= v.last || e.at-v.heard >= 3*ms) {
				v.rate = math.Max(10, v.rate-m.step*e.marks)
			}
			v.congested, v.heard, v.last = true, e.at, e.marks
		}
	}
	return vms
}

func TestConfig_Check(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"":           func(*Config) {},
		"inactivity": func(p *Config) { p.Inactivity = p.Interval - 1 },
		"period":     func(p *Config) { p.Period = 1 },
		"timeout":    func(p *Config) { p.Timeout = law.Duration(2 * time.Hour) },
		"min_rate":   func(p *Config) { p.MinRate = 1e14 },
		"increase":   func(p *Config) { p.Variant, p.Increase = Proportional, 0 },
		"fast_after": func(p *Config) { p.Variant, p.FastAfter = Proportional, law.Duration(2*time.Hour) },
	} {
		p := Default()
		change(p)
		if err := p.Check(); (err == nil) != (want == "") {
			t.Errorf("%q: %v", want, err)
		}
		_, err := NewHost(*p)
		_, err2 := NewReceiver(*p)
		if (err == nil) != (want == "") || (err2 == nil) != (want == "") {
			t.Errorf("%q: %v, %v", want, err, err2)
		}
	}
}

func TestHost_KeepsNothingBorrowed(t *testing.T) {
	lawtest.Keeps(t, func() law.Law {
		h, err := NewHost(*Default())
		if err != nil {
			t.Fatal(err)
		}
		return h
	}, func(t *rapid.T) law.Event {
		return &inventory.Host{At: 1, Rate: 1e9, VMs: []inventory.VM{{Number: law.VM(rapid.IntRange(1, 3).Draw(t, "vm"))}}}
	}, func(t *rapid.T) law.Event {
		return &telemetry.Sent{T: ms, VMs: []telemetry.VMSent{{VM: law.VM(rapid.IntRange(1, 3).Draw(t, "vm")), Packets: 3}}}
	}, func(t *rapid.T) law.Event {
		return &telemetry.Marked{VM: law.VM(rapid.IntRange(1, 3).Draw(t, "vm")), Marks: rapid.Uint64Range(0, 5000).Draw(t, "marks")}
	})
}
