package controller

import (
	"strings"
	"testing"
	"time"

	"weir/datapath/testnet"
)

// All attacks at once on a controller that has a fabric of Open vSwitch with hosts. Each ends with its cause, which is counted and
// logged. The controller's memory stays bounded, and the honest switches are served as before. The floods are small ones, and smaller on a
// slow machine: BenchmarkSiege has the others.
func TestSiege(t *testing.T) {
	t.Parallel()
	r := newRacks(t, 2, 1, 2)
	r.connect(t)
	r.startController()
	r.settled(t, 2)
	r.reach(t)
	honest := map[string]bool{"0000000000000001": true, "0000000000000002": true, "0000000000000065": true}
	before := memoryOf(t, r.controller)
	for _, a := range attacks {
		if a.name != "SYN-200k-200-switches" { // the same as those with fewer, and more than a busy machine can do
			r.attackFrom(t, a.name, gently)
		}
	}
	want := map[string]uint64{}
	for _, a := range attacks {
		if a.cause != "" {
			want[a.cause] = 3
		}
	}
	// All that can be refused was, several times; meanwhile hosts that nobody knew yet find each other.
	var s *Status
	most := before
	testnet.Until(t, "each cause to be counted", func() bool {
		if s = r.status(t); s == nil {
			return false
		}
		most = max(most, memoryOf(t, r.controller))
		for cause, n := range want {
			if s.Peers.Ended[cause] < n {
				return false
			}
		}
		return s.Raises > 1 && s.Core.Frames > 10000 && s.Forward.Counts.LinksForged > 0
	})
	t.Logf("%d connections, ended %v; %d packets, %d dropped; slowest step %d us; %.0f MB, before %.0f", s.Peers.Accepted, s.Peers.Ended,
		s.Core.Frames, s.Core.FramesDropped, s.Core.SlowestStepUs, most, before)
	if limit := raiseStep * uint64(s.UpSeconds+2); s.Generation > limit {
		t.Errorf("switches that lie raised the generation id to %d, at most %d was to be", s.Generation, limit)
	}
	if most > before+512 {
		t.Errorf("%.0f MB, before %.0f", most, before)
	}
	t.Logf("%d datagrams asked again", r.reach(t))
	r.setCable(t, leafSpine(1, 1), false) // the controller still hears, and still commands
	r.linksOf(t, honest, 1)
	r.setCable(t, leafSpine(1, 1), true)
	r.linksOf(t, honest, 2)
	r.reach(t)
	for _, cause := range []string{"handshake", "version", "malformed", "slow_message", "stale", "role_forged"} {
		if !strings.Contains(r.controller.Log.String(), "cause="+cause) && !strings.Contains(r.controller.Log.String(), "("+cause+")") {
			t.Errorf("the log does not speak of %s", cause)
		}
	}
}

// linksOf waits until the honest switches are there, confirmed, with so many links, and none to another one. How long that takes
// depends on the processor time that the attackers leave, so the bound is only a guard. Each question costs the laws' time, so
// it asks twice a second.
func (r *racks) linksOf(tb testing.TB, honest map[string]bool, links int) {
	tb.Helper()
	var s *Status
	look := time.NewTicker(500 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(testnet.Patience); ; <-look.C {
		if s = r.status(tb); s != nil && linked(tb, s, honest, links) {
			return
		}
		if time.Now().After(end) {
			break
		}
	}
	if s == nil {
		tb.Fatal("the controller does not answer")
	}
	for _, d := range s.Forward.Switches {
		if honest[d.ID] {
			tb.Logf("%+v", d)
		}
	}
	tb.Fatalf("the honest switches should have %d links: %v; %+v, slowest step %d us", links, s.Forward.Links, s.Forward.Counts, s.Core.SlowestStepUs)
}

// linked reports whether the honest switches are there with so many links. A link of them to another switch is a failure.
func linked(tb testing.TB, s *Status, honest map[string]bool, links int) bool {
	tb.Helper()
	there, between := 0, 0
	for _, d := range s.Forward.Switches {
		if honest[d.ID] && d.Joined {
			there++
		}
	}
	for _, l := range s.Forward.Links {
		a, _, _ := strings.Cut(l.A, ":")
		b, _, _ := strings.Cut(l.B, ":")
		if honest[a] && honest[b] {
			between++
		} else if honest[a] || honest[b] {
			tb.Fatalf("a forged link: %v", l)
		}
	}
	return there == len(honest) && between == links
}
