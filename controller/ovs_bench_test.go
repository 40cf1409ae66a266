package controller

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"
)

// BenchmarkRecovery takes the racks through faults, with a datagram every millisecond between pairs of hosts
// in different racks, and reports the longest silence that a pair saw, in ms: the median and the worst of
// pairs and repetitions. A repetition is one fault of each kind; the link, the spine and the pairs are drawn
// from the number of the repetition, which is the seed.
func BenchmarkRecovery(b *testing.B) {
	r := newRacks(b, 4, 2, 7)
	r.connect(b)
	r.startController()
	r.settled(b, 8)
	r.reach(b)
	silent := map[string][]float64{}
	note := func(what string, gaps []float64) { silent[what] = append(silent[what], gaps...) }
	for seed := uint64(1); b.Loop(); seed++ {
		rng := rand.New(rand.NewPCG(seed, 8))
		leaf, spine := 1+rng.IntN(r.leaves), 1+rng.IntN(r.spines)
		note("nothing", r.silence(b, rng, func() { time.Sleep(time.Second) }))
		cable := leafSpine(leaf, spine)
		note("cut", r.silence(b, rng, func() { r.setCable(b, cable, false); r.settled(b, 7) }))
		note("mended", r.silence(b, rng, func() { r.setCable(b, cable, true); r.settled(b, 8) }))
		// One set of streams over all of it: a pair that begins meanwhile waits for ARP.
		note("controller-killed-10s-and-back", r.silence(b, rng, func() {
			r.controller.kill()
			time.Sleep(10 * time.Second)
			r.startController()
			r.settled(b, 8)
		}))
		note("all-switches-restarted", r.silence(b, rng, func() { r.ovs.kill(); r.startSwitches(); r.settled(b, 8) }))
	}
	for what, gaps := range silent {
		slices.Sort(gaps)
		b.ReportMetric(gaps[len(gaps)/2], what+"-p50-ms")
		b.ReportMetric(gaps[len(gaps)-1], what+"-max-ms")
	}
}

// silence sends between sixteen pairs of racks while something happens, and a second after it. It gives each
// pair's longest time without an arrival, in ms.
func (r *racks) silence(tb testing.TB, rng *rand.Rand, happens func()) []float64 {
	tb.Helper()
	const pairs = 16
	gaps := make(chan float64, pairs)
	stop := make(chan struct{})
	for range pairs {
		a := rng.IntN(len(r.hosts))
		z := (a + r.perLeaf*(1+rng.IntN(r.leaves-1)) + rng.IntN(r.perLeaf)) % len(r.hosts)
		if a/r.perLeaf == z/r.perLeaf {
			z = (z + r.perLeaf) % len(r.hosts)
		}
		r.stream(tb, r.hosts[a], r.hosts[z], stop, gaps)
	}
	time.Sleep(200 * time.Millisecond)
	happens()
	time.Sleep(time.Second)
	close(stop)
	var out []float64
	for range pairs {
		out = append(out, <-gaps)
	}
	return out
}

// stream sends a datagram each millisecond until stop, and then gives the longest time between two arrivals.
func (r *racks) stream(tb testing.TB, a, z *host, stop <-chan struct{}, gap chan<- float64) {
	tb.Helper()
	var to, from *net.UDPConn
	z.ns.Must(tb, func() (err error) { to, err = net.ListenUDP("udp4", &net.UDPAddr{IP: z.ip}); return err })
	a.ns.Must(tb, func() (err error) {
		from, err = net.DialUDP("udp4", nil, to.LocalAddr().(*net.UDPAddr))
		return err
	})
	go func() {
		defer from.Close()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		var b [8]byte
		for n := uint64(0); ; n++ {
			select {
			case <-stop:
				time.Sleep(100 * time.Millisecond)
				_ = to.Close()
				return
			case <-tick.C:
				binary.BigEndian.PutUint64(b[:], n)
				_, _ = from.Write(b[:]) // what is lost is what is measured
			}
		}
	}()
	go func() {
		longest, last := time.Duration(0), time.Now()
		var b [8]byte
		for {
			if _, err := to.Read(b[:]); err != nil {
				gap <- float64(longest) / 1e6
				return
			}
			now := time.Now()
			longest, last = max(longest, now.Sub(last)), now
		}
	}()
}

// BenchmarkSpread reports how the SYNs of a thousand connections between two hosts split over two spines.
func BenchmarkSpread(b *testing.B) {
	r := newRacks(b, 2, 2, 7)
	r.connect(b)
	r.startController()
	r.settled(b, 4)
	r.reach(b)
	var worst float64
	for seed := 0; b.Loop(); seed++ {
		got := r.connections(b, r.hosts[seed%7], r.hosts[7+seed/7%7], 10000+seed*1000%50000)
		worst = max(worst, 2*float64(max(got[0], got[1]))/float64(got[0]+got[1])-1)
	}
	b.ReportMetric(100*worst, "worst-%-off-half")
}

// BenchmarkPinned pins flows, sends data one way and acknowledgements the other, and reports how many of the
// acknowledgements came back by another spine than the data went by: frames, counted at the uplinks.
func BenchmarkPinned(b *testing.B) {
	r := newRacks(b, 2, 4, 7)
	r.connect(b)
	r.startController()
	r.settled(b, 8)
	r.reach(b)
	var data, astray, acks uint64
	for seed := 0; b.Loop(); seed++ {
		up, down := r.pinnedTransfer(b, seed)
		way := 0
		for s := range up {
			if up[s] > up[way] {
				way = s
			}
		}
		for s := range up {
			data += up[s]
			if s != way {
				astray += down[s]
			}
			acks += down[s]
		}
	}
	b.ReportMetric(float64(data)/float64(b.N), "frames-of-data/op")
	b.ReportMetric(float64(acks)/float64(b.N), "frames-back/op")
	b.ReportMetric(float64(astray)/float64(b.N), "back-by-another-spine/op")
}
