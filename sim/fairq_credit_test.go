//go:build cgo

package sim

import (
	"fmt"
	"testing"
	"time"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/result"
	"weir/law"
)

// Paper 002's mild incast (F1: 126 answers of 11.5 KB at a time) at a buffer of 85.3 KB. One segment of each flow is more
// than port and BDP hold, so windows alone drop. With credits no packet is dropped at any port, no flow waits for a
// timeout, and answers take about as long as each other.
func TestFairQ_CreditsInAnIncast(t *testing.T) {
	f, err := laws.All().Load("../experiments/fairq/F1.yaml")
	if err != nil {
		t.Fatal(err)
	}
	slowest := map[string]time.Duration{}
	drops := map[string]int{}
	for _, scheme := range []string{"droptail", "fairq", "credits"} {
		name, set := scheme, []string{"traffic.mice.requests=30", "seeds=[1]", "vary=[]"}
		if scheme == "credits" {
			name, set = "fairq", append(set, "schemes.fairq.params.credits=true")
		}
		p, err := f.Plan(experiment.Options{Worlds: []string{"sim"}, Schemes: []string{name}, Set: set})
		if err != nil {
			t.Fatal(err)
		}
		raw := ran(t, &World{Laws: laws.Sim()}, p.Runs[0])
		slowest[scheme], drops[scheme] = slowestFlow(t, raw), len(raw.Drops)
	}
	if drops["credits"] > 0 || drops["fairq"] == 0 || drops["droptail"] == 0 {
		t.Errorf("drops %v: want some without credits, none with", drops)
	}
	// 126 x 11.5 KB take 11.6 ms of a line that carries nothing else. Headers and handshakes add a quarter.
	if slowest["credits"] > 18*time.Millisecond || slowest["droptail"] < 200*time.Millisecond || slowest["fairq"] < 200*time.Millisecond {
		t.Errorf("the slowest answers took %v: want a timeout without credits, 18 ms at most with", slowest)
	}
}

// The heavy incast (F2: 630 answers at a time), from its first packet: no segment is dropped, and all answers take about as
// long as each other. A cycle of 630 segments takes 8 ms. With a longest_wait of 2 ms most packets pass, and segments drop.
func TestFairQ_CreditsInAHeavyIncast(t *testing.T) {
	raw := heavyIncast(t)
	if len(raw.Drops) > 0 {
		t.Errorf("%d segments were dropped", len(raw.Drops))
	}
	// 630 x 11.5 KB take 58 ms of a line that carries nothing else.
	if slowest := slowestFlow(t, raw); slowest > 80*time.Millisecond {
		t.Errorf("the slowest answer took %v: want 80 ms at most", slowest)
	}
	if raw := heavyIncast(t, "schemes.fairq.params.longest_wait=2ms", "schemes.fairq.params.repair_losses=false"); len(raw.Drops) == 0 {
		t.Error("no segment was dropped with a longest_wait of 2 ms")
	}
}

// The heavy incast with hold_requests. Requests wait for up to 16 ms in the parking of the core. The ports of the ToR switch before
// it expect their answers: up to 280 KB each, where the buffer holds 85 KB. The answers come one after another, so no request is
// held there, and answers take as long as without hold_requests.
func TestFairQ_HeldRequestsInAHeavyIncast(t *testing.T) {
	raw := heavyIncast(t, "schemes.fairq.params.hold_requests=true")
	if slowest := slowestFlow(t, raw); len(raw.Drops) > 0 || slowest > 80*time.Millisecond {
		t.Errorf("%d segments were dropped, and the slowest answer took %v: want none, 80 ms at most", len(raw.Drops), slowest)
	}
}

// 128 answers at once, by servers that all run every 8 ms only: what was asked since then is answered at once. The line carries
// 150 KB in this time, and the buffer holds 85 KB. Requests are held once a queue has shown this, and then almost nothing has no room
// in the buffer after the first burst. With repair_losses nothing is dropped. Servers that take up to 16 ms, each its own time, answer
// one after another: where requests are held nothing is dropped, whatever the seed. Without, two of six seeds lose 1 and 9 segments.
func TestFairQ_CreditsWithLateServers(t *testing.T) {
	const least = 128 * 12_200 * 8 * time.Second / 150_000_000
	run := func(t *testing.T, seed uint64, late string, hold, repair bool) (first, later int, slowest time.Duration) {
		f, err := laws.All().Load("../experiments/fairq/burst.yaml")
		if err != nil {
			t.Fatal(err)
		}
		p, err := f.Plan(experiment.Options{Worlds: []string{"sim"}, Schemes: []string{"credits"}, Set: []string{
			fmt.Sprintf("seeds=[%d]", seed), "vary=[]", "traffic.mice.count=16", "traffic.mice.epochs=4", "duration=7s", late,
			fmt.Sprintf("schemes.credits.params.hold_requests=%t", hold), fmt.Sprintf("schemes.credits.params.repair_losses=%t", repair),
		}})
		if err != nil {
			t.Fatal(err)
		}
		raw := ran(t, &World{Laws: laws.Sim()}, p.Runs[0])
		for i := range raw.Drops {
			if raw.Drops[i].At < 1900*time.Millisecond { // the second burst begins at 2 s
				first++
			} else {
				later++
			}
		}
		for i := range raw.Flows {
			if fl := &raw.Flows[i]; fl.Epoch > 0 {
				slowest = max(slowest, fl.FCT())
			}
		}
		return first, later, slowest
	}
	without := 0
	for _, hold := range []bool{false, true} {
		first, later, slowest := run(t, 1, "traffic.mice.batch=8ms", hold, false)
		t.Logf("hold_requests %t: %d, %d segments dropped, slowest %v", hold, first, later, slowest)
		if hold && (later > without/50 || slowest > least*3/2) {
			t.Errorf("%d segments were dropped after the first burst, and the slowest answer took %v: want at most %d, in %v", later, slowest, without/50, least*3/2)
		}
		if !hold && (first == 0 || later == 0) {
			t.Errorf("%d, %d segments were dropped without hold_requests: this test shows nothing", first, later)
		}
		without = later
		for seed := range uint64(6) {
			first, later, slowest = run(t, seed+1, "traffic.mice.think=[0s, 16ms]", hold, false)
			if hold && first+later > 0 || slowest > least*3/2 {
				t.Errorf("one after another, hold_requests %t, seed %d: %d segments were dropped, the slowest answer took %v: want %v at most, and none where requests are held",
					hold, seed+1, first+later, slowest, least*3/2)
			}
		}
	}
	if first, later, slowest := run(t, 1, "traffic.mice.batch=8ms", true, true); first+later > 0 || slowest > least*3/2 {
		t.Errorf("with repair_losses %d, %d segments were dropped, and the slowest answer took %v: want none, %v at most", first, later, slowest, least*3/2)
	}
}

// 320 connections open one after another, one each 200 us, and are asked in the same order 100 ms later. So each measured a short round
// trip when it opened, and its answer takes hundreds of those. Its server soon probes for a loss, for as long as it expects a short
// round trip. The probes fill the buffer, and nothing is dropped, because a port keeps what has no room.
func TestFairQ_CreditsForConnectionsWithShortRoundTrips(t *testing.T) {
	f, err := laws.All().Load("../experiments/fairq/burst.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Plan(experiment.Options{Worlds: []string{"sim"}, Schemes: []string{"credits"}, Set: []string{
		"seeds=[1]", "vary=[]", "traffic.mice.count=1", "traffic.mice.epochs=1", "duration=2s",
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := p.Runs[0]
	mice := r.Config.Items[0] // an answer from each of 8 hosts
	r.Config.Items = nil
	for i := range 40 {
		it := mice
		it.Name = fmt.Sprintf("mice%d", i)
		it.Start += law.Duration(i) * law.Duration(8*200*time.Microsecond)
		r.Config.Items = append(r.Config.Items, it)
	}
	raw := ran(t, &World{Laws: laws.Sim()}, r)
	const most = 320 * 12_200 * 8 * time.Second / 150_000_000 * 13 / 10
	if slowest := slowestFlow(t, raw); len(raw.Drops) > 0 || slowest > most {
		t.Errorf("%d segments were dropped, and the slowest answer took %v: want none, %v at most", len(raw.Drops), slowest, most)
	}
}

// heavyIncast runs F2 with credits and these changes.
func heavyIncast(t *testing.T, set ...string) *result.Raw {
	t.Helper()
	f, err := laws.All().Load("../experiments/fairq/F2.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const requests = 15
	p, err := f.Plan(experiment.Options{Worlds: []string{"sim"}, Schemes: []string{"fairq"}, Set: append(set,
		fmt.Sprintf("traffic.mice.requests=%d", requests), "seeds=[1]", "vary=[]", "schemes.fairq.params.credits=true",
	)})
	if err != nil {
		t.Fatal(err)
	}
	return ran(t, &World{Laws: laws.Sim()}, p.Runs[0])
}

// slowestFlow returns the longest completion time; all flows must have ended.
func slowestFlow(t *testing.T, raw *result.Raw) (most time.Duration) {
	t.Helper()
	for i := range raw.Flows {
		if !raw.Flows[i].Done {
			t.Fatalf("flow %d did not end", i)
		}
		most = max(most, raw.Flows[i].FCT())
	}
	return most
}
