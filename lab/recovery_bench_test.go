package lab

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/experiment"
)

const (
	recoveryPairs = 16
	recoveryEvery = 5 * time.Millisecond // between two datagrams of a pair; shorter outages are not visible
)

// recovery causes faults in four racks of seven under two spines, while pairs of hosts in different racks send,
// and records the longest time that each pair received nothing.
type recovery struct {
	*Lab
	b      *testing.B
	rng    *rand.Rand
	kinds  []string
	silent map[string][]float64 // ms, by kind of fault
}

// BenchmarkRecovery reports the median and the worst of pairs and seeds. The seed of a repetition is its number;
// the link, the spine, the leaf and the pairs are drawn from it.
func BenchmarkRecovery(b *testing.B) {
	r := &recovery{Lab: upControlled(b, "recovery", leafSpine(4, 7, false)), b: b, silent: map[string][]float64{}}
	for seed := uint64(1); b.Loop(); seed++ {
		r.rng = rand.New(rand.NewPCG(seed, 8))
		r.round(seed)
	}
	for _, what := range r.kinds {
		gaps := r.silent[what]
		slices.Sort(gaps)
		b.ReportMetric(gaps[len(gaps)/2], what+"-p50-ms")
		b.ReportMetric(gaps[len(gaps)-1], what+"-max-ms")
	}
	b.ReportMetric(0, "ns/op") // a repetition waits most of its time
}

func (r *recovery) round(seed uint64) {
	leaf, spine, other := 1+r.rng.IntN(4), 1+r.rng.IntN(2), 1+r.rng.IntN(4)
	r.b.Logf("seed %d: link leaf%d-spine%d, spine%d, leaf%d", seed, leaf, spine, spine, other)
	node, spineNode, otherNode := fmt.Sprintf("leaf%d", leaf), fmt.Sprintf("spine%d", spine), fmt.Sprintf("leaf%d", other)
	uplink := fmt.Sprintf("p%d", 7+spine)
	r.during("nothing", "", func() { time.Sleep(time.Second) })
	r.during("link-cut", "", func() { r.setLink(r.b, node, uplink, false); r.knows(r.b, 0, 1) })
	r.during("link-mended", "", func() { r.setLink(r.b, node, uplink, true); r.knows(r.b, 0, 0) })
	r.during("spine-killed", "", func() { r.signalSwitch(r.b, spineNode, unix.SIGKILL); r.knows(r.b, 1, 4) })
	r.during("spine-back", "", func() { r.restart(r.b, spineNode); r.knows(r.b, 0, 0) })
	r.during("spine-hangs", "", func() { r.signalSwitch(r.b, spineNode, unix.SIGSTOP); r.knows(r.b, 1, 4) })
	r.during("spine-goes-on", "", func() { r.signalSwitch(r.b, spineNode, unix.SIGCONT); r.knows(r.b, 0, 0) })
	r.during("leaf-killed-others", otherNode, func() { r.signalSwitch(r.b, otherNode, unix.SIGKILL); r.knows(r.b, 1, 2) })
	r.during("leaf-back-others", otherNode, func() { r.restart(r.b, otherNode); r.knows(r.b, 0, 0) })
	r.during("leaf-restarted-its-own", "", func() {
		r.signalSwitch(r.b, otherNode, unix.SIGKILL)
		r.restart(r.b, otherNode)
		r.knows(r.b, 0, 0)
	})
	r.during("controller-killed-10s-and-back", "", func() {
		r.controller.kill(r.b)
		time.Sleep(10 * time.Second)
		r.controllerAgain(r.b)
	})
}

// during sends between pairs of racks while a fault happens, and a second after it. It leaves out the pairs of the
// rack without.
func (r *recovery) during(what, without string, happens func()) {
	var racks [][]*node
	for _, n := range r.plan.nodes {
		if n.kind == experiment.Switch && len(n.ports) > 4 && n.name != without {
			racks = append(racks, r.plan.guestsOf(n.name))
		}
	}
	gaps, stop := make(chan float64, recoveryPairs), make(chan struct{})
	for range recoveryPairs {
		a := r.rng.IntN(len(racks))
		z := (a + 1 + r.rng.IntN(len(racks)-1)) % len(racks)
		r.stream(racks[a][r.rng.IntN(7)], racks[z][r.rng.IntN(7)], stop, gaps)
	}
	time.Sleep(200 * time.Millisecond)
	happens()
	time.Sleep(time.Second)
	close(stop)
	var here []float64
	for range recoveryPairs {
		here = append(here, <-gaps)
	}
	slices.Sort(here)
	r.b.Logf("%s: %.0f ms", what, here)
	if !slices.Contains(r.kinds, what) {
		r.kinds = append(r.kinds, what)
	}
	r.silent[what] = append(r.silent[what], here...)
}

func (p *plan) guestsOf(sw string) []*node {
	return slices.DeleteFunc(p.guests(), func(n *node) bool { return n.attached != sw })
}

// stream sends datagrams until stop, then returns the longest time between two arrivals, or from the last one to
// the end, in ms.
func (r *recovery) stream(a, z *node, stop <-chan struct{}, gap chan<- float64) {
	var to, from *net.UDPConn
	err := r.Enter(z.name, func() (err error) {
		to, err = net.ListenUDP("udp4", &net.UDPAddr{IP: z.addr(0).AsSlice()})
		return err
	})
	if err == nil {
		err = r.Enter(a.name, func() (err error) {
			from, err = net.DialUDP("udp4", &net.UDPAddr{IP: a.addr(0).AsSlice()}, to.LocalAddr().(*net.UDPAddr))
			return err
		})
	}
	if err != nil {
		r.b.Fatal(err)
	}
	go func() {
		defer from.Close()
		tick := time.NewTicker(recoveryEvery)
		defer tick.Stop()
		var b [8]byte
		for n := uint64(0); ; n++ {
			select {
			case <-stop:
				_ = to.Close()
				return
			case <-tick.C:
				binary.BigEndian.PutUint64(b[:], n)
				_, _ = from.Write(b[:]) // losses are what is measured
			}
		}
	}()
	go func() {
		longest, last := time.Duration(0), time.Now()
		var b [8]byte
		for {
			_, err := to.Read(b[:])
			now := time.Now()
			longest, last = max(longest, now.Sub(last)), now
			if err != nil {
				gap <- float64(longest) / 1e6
				return
			}
		}
	}()
}

// BenchmarkSpread reports the largest deviation from an even split of 3000 connections over two spines. For pinned
// connections it reports how many segments came back over the other spine.
func BenchmarkSpread(b *testing.B) {
	l := upControlled(b, "spread", leafSpine(4, 7, false))
	taps := l.spineTaps(b)
	var worst float64
	var data, back, astray int
	for seed := 1; b.Loop(); seed++ {
		rng := rand.New(rand.NewPCG(uint64(seed), 8))
		to := fmt.Sprintf("leaf%d.server%d", 2+rng.IntN(3), 1+rng.IntN(7))
		from := fmt.Sprintf("leaf1.server%d", 1+rng.IntN(7))
		got, _ := l.spread(b, taps, from, to)
		off := 2*float64(max(got[0], got[1]))/float64(got[0]+got[1]) - 1
		worst = max(worst, off)
		up, down := l.pinned(b, taps, from, to, 9000+seed)
		b.Logf("seed %d: %s to %s: %d connections %v; pinned: up %v, down %v", seed, from, to, spreadConnections, got, up, down)
		way := 0
		if up[1] > up[0] {
			way = 1
		}
		data, back, astray = data+up[way], back+down[way], astray+down[1-way]
	}
	b.ReportMetric(100*worst, "worst-%-off-half")
	b.ReportMetric(float64(data)/float64(b.N), "segments-of-data/op")
	b.ReportMetric(float64(back)/float64(b.N), "segments-back/op")
	b.ReportMetric(float64(astray)/float64(b.N), "back-by-another-spine/op")
}
