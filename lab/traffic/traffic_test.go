package traffic_test

import (
	"context"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/datapath/testnet"
	"weir/experiment"
	"weir/experiment/result"
	"weir/lab/traffic"
	"weir/law"
)

// checkDone checks the properties of every complete flow.
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

// TestBytesOnTheWire captures the packets: exactly `size` bytes in the data's direction, and the request or answer
// of 64 B in the other.
func TestBytesOnTheWire(t *testing.T) { everyTCP(t, 0, testBytesOnTheWire) }

func testBytesOnTheWire(t *testing.T, n *pairNet) {
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
			wire := sniff(t, n, "b")
			out := run(t, n, config(longEnough, n.item(experiment.Traffic{
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

// TestFCT: the completion time includes all packets of the flow, from the SYN to the last data, and fits the rate
// of the link.
func TestFCT(t *testing.T) { everyTCP(t, 100e6, testFCT) }

func testFCT(t *testing.T, n *pairNet) {
	for data, connects := range map[string]string{"push": "a", "pull": "b"} {
		wire := sniff(t, n, "b")
		out := run(t, n, config(longEnough, n.item(experiment.Traffic{Data: data, Pattern: "burst", Size: 1_000_000})))
		checkDone(t, &out.Flows[0], 1_000_000)
		_, _, span := wire()
		// 1 MB at 100 Mbit/s takes 80 ms; the queue's own bucket lets 64 KB through at once.
		if fct := out.Flows[0].FCT(); fct < span || fct < 75*time.Millisecond {
			t.Errorf("%s: FCT %v, on the wire %v", data, fct, span)
		}
		// Only the kernel's connections report when they open.
		if f := &out.Flows[0]; (f.Wrote > 0) != (n.Guest(connects, n.profile()) == nil) || f.Wrote > f.FCT() {
			t.Errorf("%s: written %v after connect(), of %v in all", data, f.Wrote, f.FCT())
		}
	}
}

func TestThousandsOfConnections(t *testing.T) { everyTCP(t, 0, testThousandsOfConnections) }

func testThousandsOfConnections(t *testing.T, n *pairNet) {
	out := run(t, n, config(longEnough,
		n.item(experiment.Traffic{Name: "web", Data: "pull", Pattern: "closed_loop", Size: 11_500, Requests: 1500, Concurrency: 63}),
		n.item(experiment.Traffic{Name: "store", Data: "push", Pattern: "closed_loop", Size: 2000, Requests: 500, Concurrency: 7, Every: ms(100), Epochs: 2}),
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
	if out.Ended >= longEnough {
		t.Errorf("the run went on after its flows: %v", out.Ended)
	}
}

func TestPersistentLoop(t *testing.T) { everyTCP(t, 0, testPersistentLoop) }

func testPersistentLoop(t *testing.T, n *pairNet) {
	for _, data := range []string{"push", "pull"} {
		out := run(t, n, config(longEnough, n.item(experiment.Traffic{
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

// A flow that waits behind another one on an open connection until the run ends: the connection opened, and the flow's
// counts are as well known as those of the flow before it, and 0.
func TestPersistentWaits(t *testing.T) { everyTCP(t, 10e6, testPersistentWaits) } // 1 MB in 800 ms

func testPersistentWaits(t *testing.T, n *pairNet) {
	out := runUntil(t, n, config(500*time.Millisecond, n.item(experiment.Traffic{
		Pattern: "burst", Size: 1_000_000, Every: ms(10), Epochs: 2, Connection: "persistent",
	})), func(f result.Flow) bool { return f.Epoch == 0 && f.Bytes == 0 })
	first, second := &out.Flows[0], &out.Flows[1]
	if first.Epoch == 1 { // after a stall of the machine both were due, and the flows stand in the order of their beginnings
		first, second = second, first
	}
	if first.Opening != result.Opened || second.Opening != result.Opened || second.Key != (result.Key{}) {
		t.Fatalf("%+v, %+v", first, second)
	}
	if (first.Timeouts < 0) != (second.Timeouts < 0) || second.Timeouts > 0 || first.OutOfOrder.Known != second.OutOfOrder.Known {
		t.Errorf("%d and %d timeouts, out of order %+v and %+v", first.Timeouts, second.Timeouts, first.OutOfOrder, second.OutOfOrder)
	}
}

// runUntil runs the traffic until the machine delayed none of its flows for all of its time.
func runUntil(t *testing.T, n *pairNet, cfg *experiment.Config, waited func(f result.Flow) bool) *traffic.Outcome {
	t.Helper()
	const rounds = 20
	for range rounds {
		out := run(t, n, cfg)
		if !slices.ContainsFunc(out.Flows, waited) {
			return out
		}
	}
	t.Fatalf("in each of %d runs the machine kept a flow waiting for all of its time", rounds)
	return nil
}

func noBytes(f result.Flow) bool { return f.Bytes == 0 }

func TestGiveUp(t *testing.T) { everyTCP(t, 10e6, testGiveUp) } // 125 KB in 100 ms

func testGiveUp(t *testing.T, n *pairNet) {
	for _, data := range []string{"push", "pull"} {
		for _, connection := range []string{"new", "persistent"} {
			out := runUntil(t, n, config(longEnough, n.item(experiment.Traffic{
				Data: data, Connection: connection, Pattern: "burst", Size: 1_000_000, GiveUp: ms(100), Every: ms(150), Epochs: 2,
			})), noBytes)
			for _, f := range out.Flows {
				if f.Done || f.FCT() != 100*time.Millisecond || f.Bytes >= 1_000_000 {
					t.Errorf("%s %s: done %v after %v with %d B", data, connection, f.Done, f.FCT(), f.Bytes)
				}
			}
			if len(out.Flows) != 2 || out.Flows[0].Key == out.Flows[1].Key {
				t.Errorf("%s %s: %d flows; the second needs a new connection", data, connection, len(out.Flows))
			}
		}
	}
}

func TestStop(t *testing.T) { everyTCP(t, 50e6, testStop) }

func testStop(t *testing.T, n *pairNet) {
	for _, data := range []string{"push", "pull"} {
		out := runUntil(t, n, config(400*time.Millisecond,
			n.item(experiment.Traffic{Name: "stopped", Data: data, Pattern: "bulk", Stop: ms(200)}),
			n.item(experiment.Traffic{Name: "to the end", Data: data, Pattern: "bulk"}),
			n.item(experiment.Traffic{Name: "cut", Data: data, Pattern: "bulk", Size: 1e9, Stop: ms(200)}),
			n.item(experiment.Traffic{Name: "unfinished", Data: data, Pattern: "burst", Size: 1e9}),
		), noBytes)
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
			if f.Done != endless || f.Endless != endless || f.End != end {
				t.Errorf("%s %s: done %v, endless %v, end %v, %d B", data, f.Item, f.Done, f.Endless, f.End, f.Bytes)
			}
		}
	}
}

func TestPoisson(t *testing.T) { everyTCP(t, 100e6, testPoisson) }

func testPoisson(t *testing.T, n *pairNet) {
	// A busy machine starts some after the stop, and ends them even later.
	out := run(t, n, config(longEnough, n.item(experiment.Traffic{Pattern: "poisson", Size: 5000, Load: 0.4, Stop: ms(500)})))
	// 100 Mbit/s x 0.4 x 0.5 s / 40,000 bit = 500, standard deviation 22.
	if len(out.Flows) < 430 || len(out.Flows) > 570 {
		t.Errorf("%d flows, expected about 500", len(out.Flows))
	}
	for i := range out.Flows {
		checkDone(t, &out.Flows[i], 5000)
	}
}

func TestUDPRate(t *testing.T) { everyTCP(t, 0, testUDPRate) }

func testUDPRate(t *testing.T, n *pairNet) {
	cfg := config(time.Second,
		n.item(experiment.Traffic{Name: "fast", Proto: "udp", Pattern: "cbr", Rate: 20e6, Start: ms(100), Stop: ms(900)}),
		n.item(experiment.Traffic{Name: "slow", Proto: "udp", Pattern: "cbr", Rate: 1.2e6, Start: ms(100), Stop: ms(900)}),
		n.item(experiment.Traffic{Name: "link", Proto: "udp", Pattern: "bulk", Start: ms(100), Stop: ms(900)}),
		n.item(experiment.Traffic{Name: "sized", Proto: "udp", Pattern: "cbr", Rate: 10e6, Size: 100_001, Start: ms(100)}),
	)
	waited := testnet.RunDelay(t)
	out := runUntil(t, n, cfg, func(f result.Flow) bool { // for three quarters of it: the rest would show too little
		return f.Item != "sized" && 4*unsent(&f) > 3*(f.End-f.Start)
	})
	waited = testnet.RunDelay(t) - waited // also if it was short, and no bin is empty
	for _, f := range out.Flows {
		perSecond := map[string]float64{"fast": 20e6, "slow": 1.2e6, "link": 100e6}[f.Item] / 8 / 1500 * 1472
		want, not := perSecond*(f.End-f.Start).Seconds(), perSecond*max(unsent(&f), waited).Seconds()
		if f.Item == "sized" {
			want, not = 100_001, 0
		}
		if float64(f.Bytes) < 0.98*(want-not) || float64(f.Bytes) > 1.02*want || !f.Done || f.Timeouts != 0 || f.Key.Proto != unix.IPPROTO_UDP {
			t.Errorf("%s: %d B, %.4f of its rate, of which %.4f may not have been sent; done %v, key %v",
				f.Item, f.Bytes, float64(f.Bytes)/want, not/want, f.Done, f.Key)
		}
	}
	if len(out.Flows) != 4 {
		t.Errorf("%d flows", len(out.Flows))
	}
}

// unsent returns the longest time of a UDP flow in which nothing was sent. One goroutine sends and receives: bins
// without a byte mean that the machine delayed it, at most from the beginning of the bin before them to the end of
// the bin after them. It makes up for 50 ms of that (udpLag), and for nothing once the flow is over.
func unsent(f *result.Flow) time.Duration {
	const bin, madeUp = 10 * time.Millisecond, 5
	last, bins := int32(f.Start/bin), int32(0)
	for _, d := range f.Delivered {
		bins += max(0, d.Bin-last+1-madeUp)
		last = d.Bin
	}
	if end := int32((f.End + bin - 1) / bin); end > last+1 {
		bins += end - last
	}
	return time.Duration(bins) * bin
}

func TestTCPAtARate(t *testing.T) { everyTCP(t, 0, testTCPAtARate) }

func testTCPAtARate(t *testing.T, n *pairNet) {
	out := run(t, n, config(time.Second, n.item(experiment.Traffic{Pattern: "cbr", Rate: 8e6, Stop: ms(500)})))
	f := out.Flows[0]
	if !f.Done || len(f.Delivered) == 0 {
		t.Fatalf("done %v, delivered %v", f.Done, f.Delivered)
	}
	// 10 KB a bin: never more, and after 200 ms or later all that is due since the flow began, except the last two
	// bins. (A busy machine delivers some late.)
	first, sum, kept := int64(f.Delivered[0].Bin), int64(0), false
	for _, d := range f.Delivered {
		sum += int64(d.Bytes)
		bins := int64(d.Bin) + 1
		if bins > 50 || sum > bins*10_000+5_000 {
			t.Errorf("%d B in %d bins of 10 ms at 8 Mbit/s: %v", sum, bins, f.Delivered)
		}
		kept = kept || bins > 20 && sum >= (bins-first-2)*10_000
	}
	if !kept {
		t.Errorf("%d B at 8 Mbit/s: %v", sum, f.Delivered)
	}
}

func TestCancel(t *testing.T) { everyTCP(t, 50e6, testCancel) }

func testCancel(t *testing.T, n *pairNet) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out, err := traffic.Run(ctx, n, config(time.Hour,
		n.item(experiment.Traffic{Name: "bulk", Pattern: "bulk"}),
		n.item(experiment.Traffic{Name: "loop", Data: "pull", Pattern: "closed_loop", Size: 1000, Connection: "persistent"}),
		n.item(experiment.Traffic{Name: "later", Pattern: "burst", Size: 1000, Every: ms(1000)}),
		n.item(experiment.Traffic{Name: "idle", Pattern: "burst", Size: 1000, Start: ms(1800_000), Connection: "persistent"}),
		n.item(experiment.Traffic{Name: "udp", Proto: "udp", Pattern: "cbr", Rate: 1e6}),
	), 1, traffic.Options{Progress: func(_ law.Duration, done int) {
		if done > 20 {
			cancel()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	n.checkWhole(t)
	if !out.Partial || len(out.Flows) < 20 || out.Ended > time.Minute {
		t.Errorf("partial %v, %d flows, ended %v", out.Partial, len(out.Flows), out.Ended)
	}
	for _, f := range out.Flows {
		if f.Endless && f.Done {
			t.Errorf("%s counts as stopped as planned", f.Item)
		}
	}
}

// TestNoLeak: descriptors and goroutines are as before, however a run ends.
func TestNoLeak(t *testing.T) { everyTCP(t, 50e6, testNoLeak) }

func testNoLeak(t *testing.T, n *pairNet) {
	cfg := func(d time.Duration) *experiment.Config {
		return config(d,
			n.item(experiment.Traffic{Name: "bulk", Pattern: "bulk", Count: 3}),
			n.item(experiment.Traffic{Name: "loop", Data: "pull", Pattern: "closed_loop", Size: 5000, Concurrency: 5}),
			n.item(experiment.Traffic{Name: "kept", Pattern: "burst", Size: 5000, Count: 3, Every: ms(20), Connection: "persistent", GiveUp: ms(10)}),
			n.item(experiment.Traffic{Name: "udp", Proto: "udp", Pattern: "cbr", Rate: 1e6}),
		)
	}
	run(t, n, cfg(500*time.Millisecond)) // opens what the Go runtime never closes
	fds, routines := descriptors(t), runtime.NumGoroutine()
	run(t, n, cfg(500*time.Millisecond))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	whenSomeCame := traffic.Options{Progress: func(_ law.Duration, done int) {
		if done > 0 {
			cancel()
		}
	}}
	if _, err := traffic.Run(ctx, n, cfg(time.Minute), 1, whenSomeCame); err != nil {
		t.Fatal(err)
	}
	n.checkWhole(t)
	if _, err := traffic.Run(context.Background(), elsewhere{n}, cfg(time.Second), 1, traffic.Options{}); err == nil {
		t.Error("a run without addresses succeeded")
	}
	// A context's AfterFunc, which closes a timer, ends by itself, a moment after its work.
	for end := time.Now().Add(testnet.Patience); (runtime.NumGoroutine() > routines || descriptors(t) > fds) && time.Now().Before(end); {
		runtime.Gosched()
	}
	if got := descriptors(t); got != fds {
		t.Errorf("%d descriptors are open, before %d", got, fds)
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
