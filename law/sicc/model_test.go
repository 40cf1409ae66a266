package sicc

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/law"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// model is Algorithm 1, slow and obvious. It keeps everything that it ever heard, and calculates each figure from that.
type model struct {
	p      Params
	buffer map[law.Port]uint64
	vms    map[netip.Addr]law.VM
	ports  map[law.Port]*modelPort
}

type modelPort struct {
	queues []float64 // of all intervals so far
	began  []int64   // flows that began minus those that ended: of each interval, and of the present one
	pairs  []pair    // in the order in which they came
	by     map[law.VM][]begun
	on     []episode
}

// episode is an incast, from its begin to its end. Both are times of readings.
type episode struct {
	begin   time.Duration
	over    bool
	renewed time.Duration
}

func (p *modelPort) isOn() bool { return len(p.on) > 0 && !p.on[len(p.on)-1].over }

// mean is the mean of all queues so far: the newest has the weight w, each before it (1-w) times that of the next.
func (p *modelPort) mean(w float64) (sum float64) {
	for i, q := range p.queues {
		sum += q * w * math.Pow(1-w, float64(len(p.queues)-1-i))
	}
	return sum
}

// elsewhere reports whether another port limits a pair.
func (m *model) elsewhere(k pair, here law.Port) bool {
	for at, p := range m.ports {
		if at != here && p.isOn() && slices.Contains(p.pairs, k) {
			return true
		}
	}
	return false
}

// begun is flows that a VM began.
type begun struct {
	at time.Duration
	n  int64
}

// share is how many of the last flows of a VM at a port count, and whether it floods, from all that it ever began there.
func (m *model) share(all []begun, buffer float64) (count int64, floods bool) {
	most, long := int64(math.Ceil(m.p.SourceShare*buffer/float64(m.p.InitialWindow)/1460)), time.Duration(m.p.MouseDuration)
	var times [][]begun // each of them begins with a flow, and is at most so long
	for _, b := range all {
		if n := len(times); n > 0 && b.at-times[n-1][0].at < long {
			times[n-1] = append(times[n-1], b)
		} else {
			times = append(times, []begun{b})
		}
	}
	sum := func(all []begun) (n int64) {
		for _, b := range all {
			n += b.n
		}
		return n
	}
	last := times[len(times)-1]
	floods = sum(last) > 8*most
	if n := len(times); n > 1 && last[0].at-times[n-2][0].at < 2*long {
		floods = floods || sum(times[n-2]) > 8*most
	}
	if floods {
		return 0, true
	}
	return min(sum(last), most) - min(sum(last[:len(last)-1]), most), false
}

// began is how many flows of a report count at a port.
func (m *model) began(now time.Duration, p *modelPort, buffer float64, a *telemetry.PortArrivals) int64 {
	active := m.p.Arrivals == ArrivalsActive
	all := int64(a.Counts.SYN + a.Counts.SYNACK)
	if active {
		all += int64(a.Counts.Resume)
	}
	if m.p.SourceShare == 0 || buffer == 0 {
		return all
	}
	listed, counted, forged := int64(0), int64(0), false
	for _, k := range a.Pairs {
		n := int64(k.Opened)
		opens := k.Kinds&(telemetry.SYN|telemetry.SYNACK) != 0
		if active {
			n += int64(k.Resumed)
			opens = opens || k.Kinds&telemetry.Resume != 0
		}
		if !opens {
			continue
		}
		n = max(n, 1)
		vm := m.vms[k.Source]
		p.by[vm] = append(p.by[vm], begun{now, n})
		count, _ := m.share(p.by[vm], buffer)
		listed, counted = listed+n, counted+count
		forged = forged || vm == 0 && count < n
	}
	if rest := all - listed; forged && rest > 0 {
		p.by[0] = append(p.by[0], begun{now, rest})
	}
	if listed == counted {
		return all
	}
	return min(counted, all)
}

// arrives returns the pairs that are limited at once.
func (m *model) arrives(now time.Duration, e *telemetry.Arrivals) (limited []pair) {
	for _, a := range e.Ports {
		p := m.port(law.Port{Switch: e.At, N: a.N})
		kinds := telemetry.SYN | telemetry.SYNACK
		if m.p.Arrivals == ArrivalsActive {
			kinds |= telemetry.Resume | telemetry.Found
		}
		buffer := float64(m.buffer[law.Port{Switch: e.At, N: a.N}])
		here := &p.began[len(p.began)-1]
		*here = max(0, *here+m.began(now, p, buffer, &a)-int64(a.Counts.FIN))
		for _, listed := range a.Pairs {
			k := pair{m.vms[listed.Source], listed.Destination}
			if listed.Kinds&kinds == 0 || k.vm == 0 || slices.Contains(p.pairs, k) {
				continue
			}
			if all := p.by[k.vm]; len(all) > 0 {
				if _, floods := m.share(all, buffer); floods {
					continue
				}
			}
			p.pairs = append(p.pairs, k)
			if p.isOn() {
				limited = append(limited, k)
			}
		}
	}
	return limited
}

func (m *model) port(at law.Port) *modelPort {
	if m.ports[at] == nil {
		m.ports[at] = &modelPort{began: []int64{0}, by: map[law.VM][]begun{}}
	}
	return m.ports[at]
}

// reads returns who is limited and who is released. tight: a figure is so near its limit that rounding decides.
func (m *model) reads(now time.Duration, at law.Port, queue uint64) (limited, released []pair, tight bool) {
	p := m.port(at)
	p.queues = append(p.queues, float64(queue))
	began := max(p.began[len(p.began)-1], 0)
	p.began = append(p.began, 0)
	buffer := float64(m.buffer[at])
	if p.isOn() {
		last := &p.on[len(p.on)-1]
		old, low := now-last.begin >= time.Duration(m.p.MouseDuration), float64(queue) <= m.p.OffFraction*buffer
		ends := map[string]bool{OffOr: old || low, OffAnd: old && low, OffQueue: low}[m.p.OffRule]
		if ends && now-last.begin >= time.Duration(m.p.MinHold) {
			last.over = true
			for _, k := range p.pairs {
				if !m.elsewhere(k, at) {
					released = append(released, k)
				}
			}
		} else if now-last.renewed >= time.Duration(m.p.Lease)/3 {
			last.renewed = now
			limited = append(limited, p.pairs...)
		}
	}
	predicted := float64(began)*float64(m.p.InitialWindow)*1460 + p.mean(m.p.QueueWeight)
	tight = math.Abs(predicted-m.p.OnFraction*buffer) < 1e-3
	if !p.isOn() && began > 0 && buffer > 0 && predicted >= m.p.OnFraction*buffer {
		p.on = append(p.on, episode{begin: now, renewed: now})
		limited = append(limited, p.pairs...)
	}
	return limited, released, tight
}

// The law decides as the model does, for any parameters and any order of events.
func TestLaw_EqualsModel(t *testing.T) {
	incasts, trials := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		trials++
		p := Default()
		p.OffRule = rapid.SampledFrom([]string{OffOr, OffAnd, OffQueue}).Draw(r, "off")
		p.Arrivals = rapid.SampledFrom([]string{ArrivalsSYN, ArrivalsActive}).Draw(r, "arrivals")
		p.InitialWindow = rapid.IntRange(1, 12).Draw(r, "window")
		p.OnFraction = rapid.Float64Range(0.1, 2).Draw(r, "on")
		p.OffFraction = rapid.Float64Range(0, 1).Draw(r, "off fraction")
		p.QueueWeight = rapid.Float64Range(0.1, 1).Draw(r, "weight")
		p.MouseDuration = law.Duration(rapid.IntRange(5, 20).Draw(r, "mouse")) * 1e6
		p.MinHold = law.Duration(rapid.IntRange(0, 5).Draw(r, "hold")) * 1e6
		p.Lease = law.Duration(rapid.IntRange(3, 30).Draw(r, "lease")) * 1e6
		p.SourceShare = rapid.SampledFrom([]float64{0, 0.05, 0.2, 0.5, 3}).Draw(r, "share")
		l, err := New(*p)
		if err != nil {
			r.Fatal(err)
		}
		m := &model{p: *p, buffer: map[law.Port]uint64{}, vms: map[netip.Addr]law.VM{}, ports: map[law.Port]*modelPort{}}
		host := &inventory.Host{At: 1}
		for n := 1; n <= 4; n++ { // 10.0.0.5 is no VM
			host.VMs = append(host.VMs, inventory.VM{Number: law.VM(n), Addresses: []netip.Prefix{netip.PrefixFrom(address(n), 32)}})
			m.vms[address(n)] = law.VM(n)
		}
		l.Step(0, host, nil)
		ports := &inventory.Switch{At: 1}
		for n := uint32(1); n <= 2; n++ { // port 3 has no known buffer
			ports.Ports = append(ports.Ports, inventory.Port{N: n, BufferBytes: bufferBytes})
			m.buffer[law.Port{Switch: 1, N: n}] = bufferBytes
		}
		l.Step(0, ports, nil)
		var now time.Duration
		for range rapid.IntRange(1, 60).Draw(r, "events") {
			if rapid.Bool().Draw(r, "arrivals") {
				e := drawArrivals(r)
				same(r, "arrivals", l.Step(now, e, nil), m.arrives(now, e), nil)
				continue
			}
			now += time.Duration(rapid.IntRange(1, 8).Draw(r, "ms")) * ms
			e := &telemetry.Telemetry{At: 1, T: ms}
			var limited, released []pair
			for n := uint32(1); n <= 3; n++ { // the law takes an unlisted port for an empty queue
				queue := uint64(rapid.IntRange(0, bufferBytes).Draw(r, "queue"))
				on, off, tight := m.reads(now, law.Port{Switch: 1, N: n}, queue)
				if tight {
					r.Skip("too near to the limit")
				}
				e.Ports = append(e.Ports, telemetry.Port{N: n, BacklogBytes: queue})
				limited, released = append(limited, on...), append(released, off...)
			}
			same(r, "reading", l.Step(now, e, nil), limited, released)
		}
		for _, at := range m.ports {
			incasts += len(at.on)
		}
	})
	if trials >= 100 && incasts < trials/2 { // by chance 20 trials, as with -short, may have few
		t.Errorf("%d incasts in %d trials: the test shows too little", incasts, trials)
	}
}

func drawArrivals(r *rapid.T) *telemetry.Arrivals {
	e := &telemetry.Arrivals{At: 1}
	for n := uint32(1); n <= 3; n++ {
		count := func(name string) uint64 { return uint64(rapid.IntRange(0, 12).Draw(r, name)) }
		a := telemetry.PortArrivals{N: n, Counts: telemetry.Counts{SYN: count("syn"), SYNACK: count("synack"), FIN: count("fin"), Resume: count("resume"), Found: count("found")}}
		for range rapid.IntRange(0, 5).Draw(r, "pairs") {
			a.Pairs = append(a.Pairs, telemetry.Pair{
				Source: address(rapid.IntRange(1, 5).Draw(r, "source")), Destination: address(rapid.IntRange(8, 9).Draw(r, "destination")),
				Kinds:  telemetry.Kind(rapid.IntRange(0, 1<<telemetry.Kinds-1).Draw(r, "kinds")),
				Opened: uint32(rapid.IntRange(0, 3).Draw(r, "opened")), Resumed: uint32(rapid.IntRange(0, 40).Draw(r, "resumed")),
			})
		}
		e.Ports = append(e.Ports, a)
	}
	return e
}

// same compares the law's actions with the model's, in any order.
func same(r *rapid.T, what string, got []law.Action, limited, released []pair) {
	var is, want []string
	for _, a := range got {
		g := a.(law.Grant)
		is = append(is, fmt.Sprint(g.Key.VM, g.Key.Peer, g.Lease > 0))
	}
	for _, k := range limited {
		want = append(want, fmt.Sprint(k.vm, k.peer, true))
	}
	for _, k := range released {
		want = append(want, fmt.Sprint(k.vm, k.peer, false))
	}
	slices.Sort(is)
	slices.Sort(want)
	if !slices.Equal(is, want) {
		r.Fatalf("%s: %v, want %v", what, is, want)
	}
}
