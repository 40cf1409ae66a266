package hygenicc

import (
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"weir/law"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// fluid is hosts with a VM each, which sends all the time at its rate, and a port with a queue. The port marks what arrives above 20
// packets. The receiver's host counts marks for an interval, and its messages need one more.
type fluid struct {
	hosts    []*Host
	receiver *Receiver
	rates    []float64 // bit/s
	marked   []float64 // packets
	queue    float64   // packets
	now      time.Duration
	in       []law.Grant // messages on their way
	queued   float64     // the sum of queue over the steps
	sent     float64     // packets that left
}

const (
	fluidStep = 20 * time.Microsecond
	fluidLine = 1e9 / 8 / 1538 // packets a second
)

func newFluid(t *testing.T, senders int, p Config) *fluid {
	t.Helper()
	r, err := NewReceiver(p)
	if err != nil {
		t.Fatal(err)
	}
	f := &fluid{receiver: r, rates: make([]float64, senders), marked: make([]float64, senders)}
	for i := range senders {
		h, err := NewHost(p)
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
	f.rates[i] = 1e9
	if g := f.hosts[i].Guests()[0]; g.Granted > 0 {
		f.rates[i] = float64(g.Granted)
	}
}

func (f *fluid) run(d time.Duration) {
	interval := time.Duration(f.hosts[0].p.Interval)
	for end := f.now + d; f.now < end; f.now += fluidStep {
		for i, h := range f.hosts {
			if w := h.Wake(); w != 0 && w <= f.now {
				f.step(i, law.Tick{})
			}
		}
		came, could := 0.0, fluidLine*fluidStep.Seconds()
		for i, r := range f.rates {
			n := r / 8 / 1538 * fluidStep.Seconds()
			came += n
			if f.queue > 20 {
				f.marked[i] += n
			}
		}
		f.sent += min(f.queue+came, could)
		f.queue = math.Min(100, math.Max(0, f.queue+came-could))
		f.queued += f.queue
		if f.now%interval == 0 {
			f.report(interval)
		}
	}
}

// report is the end of an interval.
func (f *fluid) report(interval time.Duration) {
	for _, g := range f.in {
		i := int(g.Key.Peer.As4()[3]) - 1
		f.step(i, &telemetry.Marked{VM: law.VM(i + 1), Marks: g.Value})
	}
	f.in = f.in[:0]
	take := func(e law.Event) {
		for _, a := range f.receiver.Step(f.now, e, nil) {
			f.in = append(f.in, a.(law.Grant))
		}
	}
	take(law.Tick{})
	for i := range f.hosts {
		if n := math.Floor(f.marked[i]); n > 0 {
			f.marked[i] -= n
			take(&telemetry.Came{VM: 100, Source: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), Marks: uint64(n)})
		}
		f.step(i, &telemetry.Sent{T: interval, VMs: []telemetry.VMSent{{VM: law.VM(i + 1), Packets: 10}}})
	}
}

// used returns the part of the link that was used, and the mean queue in packets, in a time.
func (f *fluid) used(d time.Duration) (part, queue float64) {
	f.sent, f.queued = 0, 0
	f.run(d)
	return f.sent / (fluidLine * d.Seconds()), f.queued / float64(d/fluidStep)
}

// equal returns how long it takes until the mean rates over 50 ms differ by a fifth at most.
func (f *fluid) equal(t *testing.T) time.Duration {
	t.Helper()
	for from := f.now; f.now < from+5*time.Second; {
		sums := make([]float64, len(f.rates))
		for range 10 {
			f.run(5 * time.Millisecond)
			for i, r := range f.rates {
				sums[i] += r
			}
		}
		if slices.Min(sums) >= 0.8*slices.Max(sums) {
			return f.now - from
		}
	}
	t.Fatalf("after 5 s the rates are %v", f.rates)
	return 0
}

// The published law uses a part of the link only. After a timeout without marks each of the four VMs gets a tenth of its uplink at once,
// which together is more than the link has left. Then all packets are marked until the queue is short, and each mark takes the same rate
// whatever the VM has. Smaller steps or an earlier rise fill the buffer instead. The variant proportional uses 96 % or more, and does not. The more VMs share a
// link, the smaller their increase should be.
func TestProportional_UsesTheLink(t *testing.T) {
	for _, decrease := range []law.Rate{500e3, 1e6, 2e6, 5e6} {
		for _, timeout := range []law.Duration{1e6, 2e6, 4e6} {
			p := *Default()
			p.Decrease, p.Timeout = decrease, timeout
			f := newFluid(t, 4, p)
			f.run(time.Second)
			if part, queue := f.used(time.Second); part > 0.95 && queue < 60 {
				t.Errorf("the published law with decrease %v and timeout %v uses %.3f of the link with a queue of %.0f packets", decrease, timeout, part, queue)
			}
		}
	}
	for _, row := range []struct {
		senders  int
		increase law.Rate
	}{{2, 1e6}, {4, 1e6}, {8, 1e6}, {16, 250e3}} {
		p := *Default()
		p.Variant, p.Increase = Proportional, row.increase
		f := newFluid(t, row.senders, p)
		f.run(time.Second)
		for i, h := range f.hosts {
			h.Guests()[0].Rate = []float64{70e6, 600e6}[i%2]
		}
		took := f.equal(t)
		part, queue := f.used(time.Second)
		t.Logf("%d senders: %.3f of the link, queue %.1f packets, equal after %v", row.senders, part, queue, took)
		if part < 0.95 || queue > 40 || took > 500*time.Millisecond {
			t.Errorf("%d senders: %.3f of the link, queue %.1f packets, equal after %v", row.senders, part, queue, took)
		}
	}
}
