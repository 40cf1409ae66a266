package soak

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"weir/datapath/testnet"
	"weir/internal/testseed"
)

// testingTB is what a test and a benchmark have.
type testingTB = testing.TB

func newSoak(tb testing.TB, random *rand.Rand, external bool) *soak {
	tb.Helper()
	w := newWorld(tb, worldOptions{external: external})
	return &soak{w: w, tb: tb, random: random, watch: newWatch(w)}
}

// play has n random faults of a world, and then compares the controllers with one that starts afterwards.
func play(tb testing.TB, random *rand.Rand, external bool, n int) {
	tb.Helper()
	s := newSoak(tb, random, external)
	// Windows of connections that are older than the programs at the VM's port are not limited.
	testnet.Until(tb, "the agent has its VM", func() bool { return strings.Contains(s.w.controls[0].status(), "VMs:1") })
	streams := s.w.Path(0).NewStreams(tb, testnet.PeerIPv4(0), 2)
	begun := time.Now()
	s.watch.until(tb, begun, s.w.controls...)
	tb.Logf("external bus %t: control %v after the start of the processes", external, time.Since(begun).Round(time.Millisecond))
	var possible []fault
	for _, f := range faults {
		if f.in(s.w) {
			possible = append(possible, f)
		}
	}
	turn := random.Perm(len(possible))
	for i := range n {
		if i%len(possible) == 0 {
			turn = random.Perm(len(possible)) // each fault once, before one comes again
		}
		f := possible[turn[i%len(possible)]]
		streams.Mark()
		since, back := f.run(s)
		took := back.Sub(since)
		verdict := ""
		if took > f.limit {
			verdict = fmt.Sprintf("; more than %v: slower than promised, or a busy machine", f.limit)
		}
		streams.Progress(tb, 100_000)
		tb.Logf("%d, %s: control is back after %v, longest stall of a stream %v%s", i+1, f.name, took.Round(time.Millisecond), streams.LongestGap().Round(time.Millisecond), verdict)
	}
	s.watch.checkTurns(tb)
	s.same()
}

// same checks that controllers know the same as one that starts now.
func (s *soak) same() {
	s.tb.Helper()
	before := ""
	testnet.Until(s.tb, "the controllers know the agent and its VM, and the same", func() bool {
		s.watch.look()
		before = s.w.controls[0].status()
		for _, n := range s.w.controls {
			if now := n.status(); now != before || !strings.Contains(now, "VMs:1") {
				return false
			}
		}
		return true
	})
	n := s.w.controls[len(s.w.controls)-1]
	n.kill()
	n.start()
	testnet.Until(s.tb, "what they knew before is what "+n.name+" learns", func() bool {
		s.watch.look()
		return n.status() == before
	})
	s.watch.until(s.tb, time.Now(), s.w.controls...)
}

// Real processes are killed and stopped, and their links cut, while a VM sends. The seed selects the faults; make soak-bus has 100.
func TestFaults(t *testing.T) {
	random := testseed.New(t)
	t.Run("external", func(t *testing.T) { play(t, random, true, 2) })
	t.Run("embedded", func(t *testing.T) { play(t, random, false, 2) })
}

// BenchmarkStallWithoutWeir has N pairs of streams that begin at the uplink of BenchmarkFaults, without Weir, and how long no byte of one
// of them arrives. A VM whose grant has expired fills the uplink's buffer in the same way, and its TCP has the same timeouts.
func BenchmarkStallWithoutWeir(b *testing.B) {
	h := testnet.NewHypervisor(b, 1, 1, testnet.PathOptions{UplinkBps: uplinkBps, UplinkLimit: uplinkBuffer, GSO: true, ChecksumOffload: true})
	var stalls []time.Duration
	for range b.N {
		streams := h.Path(0).NewStreams(b, testnet.PeerIPv4(0), 2)
		<-time.After(time.Second)
		stalls = append(stalls, streams.LongestGap())
		streams.Stop()
	}
	testnet.ReportTimes(b, stalls, "longest-stall")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkFaults has N faults, a third of them with the bus in the controller.
func BenchmarkFaults(b *testing.B) {
	random := testseed.New(b)
	play(b, random, false, b.N/3)
	play(b, random, true, b.N-b.N/3)
	b.ReportMetric(0, "ns/op")
}
