package gcc

import (
	"math"
	"testing"
	"time"

	"weir/law"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// fluid is hosts with one VM each that always send at their rates, and a port with a queue. It marks what arrives while the queue
// is above a threshold, and drops what does not fit.
type fluid struct {
	t      *testing.T
	law    *Law
	hosts  []*Host
	rates  []float64 // bit/s
	sends  []bool
	queue  float64 // packets
	marked float64
	now    time.Duration
	in     []arrival
}

// arrival is a message on its way.
type arrival struct {
	at    time.Duration
	grant law.Grant
}

const (
	fluidLine = 1e9 / 8 / 1538 // packets a second
	fluidStep = 10 * time.Microsecond
	fluidWay  = 50 * time.Microsecond
)

func newFluid(t *testing.T, senders int, change func(*Config)) *fluid {
	p := Default()
	if change != nil {
		change(p)
	}
	l, err := New(*p)
	if err != nil {
		t.Fatal(err)
	}
	f := &fluid{t: t, law: l, rates: make([]float64, senders), sends: make([]bool, senders)}
	for i := range senders {
		h, err := NewHost(*p)
		if err != nil {
			t.Fatal(err)
		}
		f.hosts = append(f.hosts, h)
		f.step(i, &inventory.Host{At: law.Host(i + 1), Rate: 1e9, VMs: []inventory.VM{{Number: law.VM(i + 1)}}})
	}
	return f
}

func (f *fluid) step(i int, e law.Event) {
	f.hosts[i].Step(f.now, e, nil)
	g := f.hosts[i].Guests()[0]
	if f.rates[i] = 0; f.sends[i] {
		f.rates[i] = 1e9
		if g.Granted > 0 {
			f.rates[i] = float64(g.Granted)
		}
	}
}

// fluidInterval is the time between two reports.
const fluidInterval = 5 * ms

// run runs the network for a time, and calls each every millisecond.
func (f *fluid) run(d time.Duration, each func()) {
	end := f.now + d
	for ; f.now < end; f.now += fluidStep {
		for i, h := range f.hosts {
			if w := h.Wake(); w != 0 && w <= f.now {
				f.step(i, law.Tick{})
			}
		}
		for len(f.in) > 0 && f.in[0].at <= f.now {
			g := f.in[0].grant
			f.in = f.in[1:]
			f.step(int(g.Key.VM)-1, &telemetry.Marked{VM: g.Key.VM, Marks: g.Value})
		}
		came := 0.0
		for _, r := range f.rates {
			came += r / 8 / 1538 * fluidStep.Seconds()
		}
		if f.queue > 20 {
			f.marked += came
		}
		f.queue = math.Min(100, math.Max(0, f.queue+came-fluidLine*fluidStep.Seconds()))
		if f.now%fluidInterval == 0 {
			f.report()
		}
		if each != nil && f.now%time.Millisecond == 0 {
			each()
		}
	}
}

// report is the end of an interval: the switch reports, and hosts look at what their VMs sent.
func (f *fluid) report() {
	m := telemetry.Port{N: 1, Marks: telemetry.Marks{Packets: uint64(f.marked)}}
	f.marked -= math.Floor(f.marked)
	for i, r := range f.rates {
		if r > 0 && m.Marks.Packets > 0 {
			m.Marks.ByVM = append(m.Marks.ByVM, of(law.VM(i+1), max(m.Marks.Packets/uint64(len(f.rates)), 1)))
		}
	}
	for _, a := range f.law.Step(f.now, &telemetry.Telemetry{At: 1, T: 5 * ms, Ports: []telemetry.Port{m}}, nil) {
		f.in = append(f.in, arrival{f.now + fluidWay, a.(law.Grant)})
	}
	for i := range f.hosts {
		if f.sends[i] {
			f.step(i, &telemetry.Sent{T: 5 * ms, VMs: []telemetry.VMSent{{VM: law.VM(i + 1), Packets: 100}}})
		}
	}
}

// GS-5: scale() is a fit to Fig. 2d. Four senders saw between 197 and 254 Mbit/s, in steps of about 55 Mbit/s; the rate rises by
// 1.3 Mbit/s a ms, and the mean is 230 to 237. After the others left, it rises by about 1.5 Mbit/s a ms for 0.2 s, then by 10 to 12,
// and has the whole line after 0.20 to 0.25 s and not much more. Other experiments run with these parameters.
func TestGS5_FitOfFig2d(t *testing.T) {
	f := newFluid(t, 4, nil)
	for i := 1; i < 4; i++ {
		f.sends[i] = true
	}
	f.run(2*time.Second, nil)
	f.sends[0] = true
	f.run(2*time.Second, nil)
	low, high, sum, n, step := math.Inf(1), 0.0, 0.0, 0.0, 0.0
	last := 0.0
	f.run(8*time.Second, func() {
		r := f.rates[0] / mbit
		low, high, sum, n = min(low, r), max(high, r), sum+r, n+1
		step = max(step, last-r)
		last = r
	})
	t.Logf("low %.0f, high %.0f, mean %.0f, largest step %.0f", low, high, sum/n, step)
	between(t, "low", low, 182, 205)
	between(t, "high", high, 245, 275)
	between(t, "mean", sum/n, 222, 240)
	between(t, "largest step down", step, 45, 65)
	f.sends = []bool{true, false, false, false}
	left, before := f.now, f.rates[0]
	f.run(50*ms, nil)
	before, at50 := f.rates[0], before
	f.run(50*ms, nil)
	slope := (f.rates[0] - before) / mbit / 50
	fast := 0.0
	for f.rates[0] < 1e9 && f.now < left+time.Second {
		was := f.rates[0]
		f.run(ms, nil)
		fast = max(fast, (f.rates[0]-was)/mbit)
	}
	t.Logf("left at %.0f; %.2f Mbit/s a ms, then %.2f; the whole line after %v", at50/mbit, slope, fast, f.now-left)
	between(t, "tenths of Mbit/s a ms", 10*slope, 12, 16)
	between(t, "Mbit/s a ms at the end", fast, 9, 14)
	between(t, "ms to the whole line", float64((f.now-left)/ms), 150, 280)
}

func between(t *testing.T, what string, got, from, to float64) {
	t.Helper()
	if got < from || got > to {
		t.Errorf("%s is %.1f, want %.0f to %.0f", what, got, from, to)
	}
}
