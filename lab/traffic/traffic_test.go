package traffic_test

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/experiment"
	"weir/experiment/result"
	"weir/lab/traffic"
	"weir/law"
)

// checkDone asserts what holds of every flow that is complete.
func checkDone(t *testing.T, f *result.Flow, size int64) {
	t.Helper()
	var delivered int64
	last := int32(-1)
	for _, d := range f.Delivered {
		delivered += int64(d.Bytes)
		if d.Bin <= last {
			t.Errorf("%s %d.%d: bins %v are not in order", f.Item, f.Mouse, f.Epoch, f.Delivered)
		}
		last = d.Bin
	}
	if !f.Done || f.Bytes != size || delivered != size {
		t.Errorf("%s %d.%d: done %v with %d B, %d B in bins; want %d", f.Item, f.Mouse, f.Epoch, f.Done, f.Bytes, delivered, size)
	}
	if end := int32(f.End / (10 * time.Millisecond)); last != end {
		t.Errorf("%s %d.%d: last byte in bin %d, end %v", f.Item, f.Mouse, f.Epoch, last, f.End)
	}
	if f.FCT() <= 0 || f.Timeouts < 0 || !f.Key.Src.IsValid() || f.Key.Dst.Port() != traffic.Port {
		t.Errorf("%s %d.%d: %v..%v, %d timeouts, key %v", f.Item, f.Mouse, f.Epoch, f.Start, f.End, f.Timeouts, f.Key)
	}
}

// TestBytesOnTheWire watches the wire: exactly `size` bytes in the data's direction, and the
// request or answer of 64 B in the other.
func TestBytesOnTheWire(t *testing.T) {
	for _, c := range []struct {
		name, data, connection string
		back                   int64 // against the data's direction
	}{
		{"push", "push", "new", 0},
		{"pull", "pull", "new", 64},
		{"push persistent", "push", "persistent", 64},
		{"pull persistent", "pull", "persistent", 64},
	} {
		for _, size := range []int64{1, 11_500, 1_000_000} {
			n := newPair(t, 0)
			wire := sniff(t, n, "b")
			out := run(t, n, config(time.Second, item(experiment.Traffic{
				Name: c.name, Data: c.data, Connection: c.connection, Pattern: "burst", Size: law.Bytes(size), Every: ms(10), Epochs: 2,
			})))
			if len(out.Flows) != 2 || out.Partial {
				t.Fatalf("%s: %d flows, partial %v", c.name, len(out.Flows), out.Partial)
			}
			keys := map[result.Key]bool{}
			for i := range out.Flows {
				checkDone(t, &out.Flows[i], size)
				keys[out.Flows[i].Key] = true
			}
			connections := 2
			if c.connection == "persistent" {
				connections = 1
			}
			if len(keys) != connections {
				t.Errorf("%s: %d connections, want %d", c.name, len(keys), connections)
			}
			there, back, _ := wire()
			if there != 2*size || back != 2*c.back {
				t.Errorf("%s of %d B: %d B on the wire there, %d B back, want %d and %d", c.name, size, there, back, 2*size, 2*c.back)
			}
		}
	}
}

// TestFCT: the completion time contains what the wire saw, from the SYN to the last data, and
// is what the rate of the link allows.
func TestFCT(t *testing.T) {
	for _, data := range []string{"push", "pull"} {
		n := newPair(t, 100e6)
		wire := sniff(t, n, "b")
		out := run(t, n, config(2*time.Second, item(experiment.Traffic{Data: data, Pattern: "burst", Size: 1_000_000})))
		checkDone(t, &out.Flows[0], 1_000_000)
		_, _, span := wire()
		// 1 MB at 100 Mbit/s is 80 ms; the queue's own bucket lets 64 KB through at once.
		if fct := out.Flows[0].FCT(); fct < span || fct < 75*time.Millisecond {
			t.Errorf("%s: FCT %v, on the wire %v", data, fct, span)
		}
	}
}

func TestThousandsOfConnections(t *testing.T) {
	n := newPair(t, 0)
	out := run(t, n, config(20*time.Second,
		item(experiment.Traffic{Name: "web", Data: "pull", Pattern: "closed_loop", Size: 11_500, Requests: 1500, Concurrency: 63}),
		item(experiment.Traffic{Name: "store", Data: "push", Pattern: "closed_loop", Size: 2000, Requests: 500, Concurrency: 7, Every: ms(100), Epochs: 2}),
	))
	requests := map[[2]any]bool{}
	for i := range out.Flows {
		f := &out.Flows[i]
		checkDone(t, f, map[string]int64{"web": 11_500, "store": 2000}[f.Item])
		requests[[2]any{f.Item, f.Epoch}] = true
		if f.Mouse < 0 || f.Mouse >= 63 || f.Item == "store" && f.Mouse >= 7 {
			t.Fatalf("%s has a mouse %d", f.Item, f.Mouse)
		}
	}
	if len(out.Flows) != 2500 || len(requests) != 2500 {
		t.Errorf("%d flows with %d different requests, want 2500", len(out.Flows), len(requests))
	}
	if out.Ended >= 20*time.Second {
		t.Errorf("the run went on after its flows: %v", out.Ended)
	}
}

func TestPersistentLoop(t *testing.T) {
	n := newPair(t, 0)
	for _, data := range []string{"push", "pull"} {
		out := run(t, n, config(5*time.Second, item(experiment.Traffic{
			Data: data, Pattern: "closed_loop", CDF: "hadoop", Requests: 200, Concurrency: 4, Connection: "persistent",
		})))
		keys := map[result.Key]int{}
		for i := range out.Flows {
			checkDone(t, &out.Flows[i], out.Flows[i].Bytes)
			keys[out.Flows[i].Key]++
		}
		if len(out.Flows) != 200 || len(keys) != 4 {
			t.Errorf("%s: %d requests on %d connections, want 200 on 4", data, len(out.Flows), len(keys))
		}
	}
}

func TestGiveUp(t *testing.T) {
	n := newPair(t, 10e6) // 125 KB in 100 ms
	for _, data := range []string{"push", "pull"} {
		for _, connection := range []string{"new", "persistent"} {
			out := run(t, n, config(2*time.Second, item(experiment.Traffic{
				Data: data, Connection: connection, Pattern: "burst", Size: 1_000_000, GiveUp: ms(100), Every: ms(150), Epochs: 2,
			})))
			for _, f := range out.Flows {
				if f.Done || f.FCT() != 100*time.Millisecond || f.Bytes == 0 || f.Bytes >= 1_000_000 {
					t.Errorf("%s %s: done %v after %v with %d B", data, connection, f.Done, f.FCT(), f.Bytes)
				}
			}
			if len(out.Flows) != 2 || out.Flows[0].Key == out.Flows[1].Key {
				t.Errorf("%s %s: %d flows; the second needs a new connection", data, connection, len(out.Flows))
			}
		}
	}
}

func TestStop(t *testing.T) {
	n := newPair(t, 50e6)
	for _, data := range []string{"push", "pull"} {
		out := run(t, n, config(400*time.Millisecond,
			item(experiment.Traffic{Name: "stopped", Data: data, Pattern: "bulk", Stop: ms(200)}),
			item(experiment.Traffic{Name: "to the end", Data: data, Pattern: "bulk"}),
			item(experiment.Traffic{Name: "cut", Data: data, Pattern: "bulk", Size: 1e9, Stop: ms(200)}),
			item(experiment.Traffic{Name: "unfinished", Data: data, Pattern: "burst", Size: 1e9}),
		))
		if len(out.Flows) != 4 {
			t.Fatalf("%d flows", len(out.Flows))
		}
		for _, f := range out.Flows {
			stopped := f.Item == "stopped" || f.Item == "cut"
			endless := f.Item == "stopped" || f.Item == "to the end"
			end := 400 * time.Millisecond
			if stopped {
				end = 200 * time.Millisecond
			}
			if f.Done != endless || f.Endless != endless || f.End != end || f.Bytes == 0 {
				t.Errorf("%s %s: done %v, endless %v, end %v, %d B", data, f.Item, f.Done, f.Endless, f.End, f.Bytes)
			}
		}
	}
}

func TestPoisson(t *testing.T) {
	n := newPair(t, 100e6)
	out := run(t, n, config(800*time.Millisecond, item(experiment.Traffic{Pattern: "poisson", Size: 5000, Load: 0.4, Stop: ms(500)})))
	// 100 Mbit/s x 0.4 x 0.5 s / 40,000 bit = 500, standard deviation 22.
	if len(out.Flows) < 430 || len(out.Flows) > 570 {
		t.Errorf("%d flows, expected about 500", len(out.Flows))
	}
	for i := range out.Flows {
		checkDone(t, &out.Flows[i], 5000)
	}
}

func TestUDPRate(t *testing.T) {
	n := newPair(t, 0)
	out := run(t, n, config(time.Second,
		item(experiment.Traffic{Name: "fast", Proto: "udp", Pattern: "cbr", Rate: 20e6, Start: ms(100), Stop: ms(900)}),
		item(experiment.Traffic{Name: "slow", Proto: "udp", Pattern: "cbr", Rate: 1.2e6, Start: ms(100), Stop: ms(900)}),
		item(experiment.Traffic{Name: "link", Proto: "udp", Pattern: "bulk", Start: ms(100), Stop: ms(900)}),
		item(experiment.Traffic{Name: "sized", Proto: "udp", Pattern: "cbr", Rate: 10e6, Size: 100_001, Start: ms(100)}),
	))
	for _, f := range out.Flows {
		rate := map[string]float64{"fast": 20e6, "slow": 1.2e6, "link": 100e6}[f.Item]
		want := rate / 8 / 1500 * 1472 * (f.End - f.Start).Seconds()
		if f.Item == "sized" {
			want = 100_001
		}
		if ratio := float64(f.Bytes) / want; math.Abs(ratio-1) > 0.02 || !f.Done || f.Timeouts != 0 || f.Key.Proto != unix.IPPROTO_UDP {
			t.Errorf("%s: %d B, %.4f of its rate; done %v, key %v", f.Item, f.Bytes, ratio, f.Done, f.Key)
		}
	}
	if len(out.Flows) != 4 {
		t.Errorf("%d flows", len(out.Flows))
	}
}

func TestTCPAtARate(t *testing.T) {
	n := newPair(t, 0)
	out := run(t, n, config(time.Second, item(experiment.Traffic{Pattern: "cbr", Rate: 8e6, Stop: ms(500)})))
	if f := out.Flows[0]; !f.Done || math.Abs(float64(f.Bytes)/500_000-1) > 0.05 {
		t.Errorf("%d B in 500 ms at 8 Mbit/s, done %v", f.Bytes, f.Done)
	}
}

func TestCancel(t *testing.T) {
	n := newPair(t, 50e6)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out, err := traffic.Run(ctx, n, config(time.Hour,
		item(experiment.Traffic{Name: "bulk", Pattern: "bulk"}),
		item(experiment.Traffic{Name: "loop", Data: "pull", Pattern: "closed_loop", Size: 1000, Connection: "persistent"}),
		item(experiment.Traffic{Name: "later", Pattern: "burst", Size: 1000, Every: ms(1000)}),
		item(experiment.Traffic{Name: "idle", Pattern: "burst", Size: 1000, Start: ms(1800_000), Connection: "persistent"}),
		item(experiment.Traffic{Name: "udp", Proto: "udp", Pattern: "cbr", Rate: 1e6}),
	), 1, traffic.Options{Progress: func(_ law.Duration, done int) {
		if done > 20 {
			cancel()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if !out.Partial || len(out.Flows) < 20 || out.Ended > time.Minute {
		t.Errorf("partial %v, %d flows, ended %v", out.Partial, len(out.Flows), out.Ended)
	}
	for _, f := range out.Flows {
		if f.Endless && f.Done {
			t.Errorf("%s counts as stopped as planned", f.Item)
		}
	}
}

// TestUnansweredSYN: a SYN without answer costs one RTO, which counts as a timeout and in the
// completion time.
func TestUnansweredSYN(t *testing.T) {
	n := newPair(t, 0)
	if err := mute(n, true); err != nil {
		t.Fatal(err)
	}
	speaking := make(chan error, 1)
	time.AfterFunc(500*time.Millisecond, func() { speaking <- mute(n, false) })
	out := run(t, n, config(5*time.Second, item(experiment.Traffic{Pattern: "burst", Size: 1000})))
	if err := <-speaking; err != nil {
		t.Fatal(err)
	}
	checkDone(t, &out.Flows[0], 1000)
	if f := out.Flows[0]; f.Timeouts != 1 || f.FCT() < time.Second {
		t.Errorf("%d timeouts and FCT %v with one SYN unanswered", f.Timeouts, f.FCT())
	}
}

func TestNothingConnects(t *testing.T) {
	n := newPair(t, 0)
	if err := mute(n, true); err != nil {
		t.Fatal(err)
	}
	_, err := traffic.Run(context.Background(), n, config(200*time.Millisecond,
		item(experiment.Traffic{Pattern: "bulk"})), 1, traffic.Options{})
	if err == nil || !strings.Contains(err.Error(), "none of 1 connections came about") {
		t.Errorf("error %v", err)
	}
	_, err = traffic.Run(context.Background(), elsewhere{n}, config(200*time.Millisecond,
		item(experiment.Traffic{Pattern: "burst", Size: 1})), 1, traffic.Options{})
	if err == nil || !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("error %v, want that the address is not the node's", err)
	}
}

// elsewhere has addresses that no node has.
type elsewhere struct{ traffic.Net }

func (elsewhere) Addr(string, int) netip.Addr { return netip.AddrFrom4([4]byte{10, 99, 99, 99}) }

// mute makes node b unable to answer, until mute(n, false).
func mute(n *pairNet, on bool) error {
	return n.Enter("b", func() error {
		rule := netlink.NewRule()
		rule.Table, rule.Priority, rule.Dst = 100, 1, &net10
		if !on {
			return netlink.RuleDel(rule)
		}
		hole := &netlink.Route{Dst: &net10, Type: unix.RTN_BLACKHOLE, Table: rule.Table}
		return errors.Join(netlink.RouteAdd(hole), netlink.RuleAdd(rule))
	})
}

func TestRTTAndProbe(t *testing.T) {
	n := newPair(t, 0)
	rtt, err := traffic.RTT(context.Background(), n, "a", "b", 1)
	if err != nil || rtt <= 0 || rtt > 100*time.Millisecond {
		t.Fatalf("round trip %v, error %v", rtt, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	samples, err := traffic.Probe(ctx, n, "a", "b", 0, 2*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if len(samples) < 50 || len(samples) > 101 {
		t.Errorf("%d samples in 200 ms, one every 2 ms", len(samples))
	}
	for _, s := range samples {
		if s.RTT <= 0 {
			t.Errorf("the probe of %d came not back on an idle network", s.At)
		}
	}
}

// TestNoLeak: descriptors and goroutines are as before, whichever way a run ends.
func TestNoLeak(t *testing.T) {
	n := newPair(t, 50e6)
	cfg := func(d time.Duration) *experiment.Config {
		return config(d,
			item(experiment.Traffic{Name: "bulk", Pattern: "bulk", Count: 3}),
			item(experiment.Traffic{Name: "loop", Data: "pull", Pattern: "closed_loop", Size: 5000, Concurrency: 5}),
			item(experiment.Traffic{Name: "kept", Pattern: "burst", Size: 5000, Count: 3, Every: ms(20), Connection: "persistent", GiveUp: ms(10)}),
			item(experiment.Traffic{Name: "udp", Proto: "udp", Pattern: "cbr", Rate: 1e6}),
		)
	}
	run(t, n, cfg(50*time.Millisecond)) // opens what the Go runtime keeps for ever
	fds, routines := descriptors(t), runtime.NumGoroutine()
	run(t, n, cfg(300*time.Millisecond))
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := traffic.Run(ctx, n, cfg(time.Minute), 1, traffic.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := traffic.Run(context.Background(), elsewhere{n}, cfg(time.Second), 1, traffic.Options{}); err == nil {
		t.Error("a run without addresses succeeded")
	}
	if got := descriptors(t); got != fds {
		t.Errorf("%d descriptors are open, before %d", got, fds)
	}
	// A context's AfterFunc ends by itself, a moment after what it did.
	for end := time.Now().Add(2 * time.Second); runtime.NumGoroutine() > routines && time.Now().Before(end); {
		runtime.Gosched()
	}
	if got := runtime.NumGoroutine(); got > routines {
		t.Errorf("%d goroutines, before %d", got, routines)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
