package sim

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/result"
	"weir/law"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// One flow on an idle network takes the time of its packets: from connect() to the last byte at the receiver. A frame
// of 1514 B takes 123.04 us on a line of 100 Mbit/s, one of 60 B 6.72 us. Delays are 100 us per link, 200 us one way.
func TestFlow_TakesWhatItsPacketsTake(t *testing.T) {
	// SYN, SYN-ACK, request or data, (data): each twice on a line, and 200 us on the way. On a line a frame takes 24
	// bytes more. The ACK of the SYN-ACK precedes the client's first data on the first line, and the ACK of the request
	// does so too.
	const syn, ack = 200*us + 2*(74+24)*80, (66 + 24) * 80
	for _, c := range []struct {
		name, traffic string
		want          time.Duration
	}{
		{"push", "{name: f, from: sender1, to: receiver1, pattern: burst, size: 1KB}", 2*syn + ack + 200*us + 2*(66+1000+24)*80},
		{"pull", "{name: f, from: sender1, to: receiver1, data: pull, pattern: burst, size: 1KB}", 2*syn + ack + 200*us + 2*(66+64+24)*80 + ack + 200*us + 2*(66+1000+24)*80},
	} {
		raw := carriedOut(t, baseWith(c.traffic))
		f := raw.Flows[0]
		if len(raw.Flows) != 1 || !f.Done || f.Bytes != 1000 || f.Timeouts != 0 || f.Src != "sender1" {
			t.Fatalf("%s: %+v", c.name, raw.Flows)
		}
		if got := f.FCT(); got != c.want {
			t.Errorf("%s takes %v, want %v", c.name, got, c.want)
		}
		if raw.Duration != f.End {
			t.Errorf("%s: the run ends at %v, its last flow at %v", c.name, raw.Duration, f.End)
		}
	}
}

// A packet in the idle network measures the RTT: the configured delays, and its own time on the lines.
func TestIdleRTT_IsAsAsked(t *testing.T) {
	raw := carriedOut(t, baseWith("{name: f, from: sender1, to: receiver1, pattern: burst, size: 1KB}"))
	if want := 400*us + 4*(60+24)*80; raw.RTT != want {
		t.Errorf("%v, want %v: 400 us and four times 84 bytes at 100 Mbit/s", raw.RTT, want)
	}
}

// AtRTT gives a network the RTT of a lab.
func TestAtRTT_GivesTheNetworkThatRoundTrip(t *testing.T) {
	for _, want := range []time.Duration{137 * us, 400 * us, 12345678, 3 * time.Second} {
		r := planned(t, baseWith("{name: f, from: sender1, to: receiver1, pattern: burst, size: 1KB}"))[0]
		at, is, err := AtRTT(r, want)
		if err != nil {
			t.Fatal(err)
		}
		raw := ran(t, &World{Laws: laws.Sim()}, at)
		if d := want - raw.RTT; d < 0 || d > 8 || raw.RTT != is { // each of four delays was rounded down
			t.Errorf("asked for %v: the network has %v, and AtRTT says %v", want, raw.RTT, is)
		}
		if at.Config.RTT != r.Config.RTT || r.Config.Graph.Links[0].Delay != 100e3 {
			t.Error("the run itself was changed, or its traffic")
		}
	}
	r := planned(t, baseWith("{name: f, from: sender1, to: receiver1, pattern: burst, size: 1KB}"))[0]
	if at, is, err := AtRTT(r, us); err != nil || is != 4*84*80 || ran(t, &World{Laws: laws.Sim()}, at).RTT != is {
		t.Errorf("1 us, less than the lines take: %v, %v", is, err)
	}
}

// In a comparison with the lab a run begins its flows when the lab's began, and its hosts have a jitter of up to a
// frame's time. The idle RTT includes neither.
func TestBesideLab_StartsAndLateness(t *testing.T) {
	const late = 123040 // ns of 1538 bytes at 100 Mbit/s
	r := planned(t, baseWith("{name: f, from: sender1, to: receiver1, pattern: burst, size: 100KB, every: 100ms, epochs: 3}"))[0]
	alone := ran(t, &World{Laws: laws.Sim()}, r)
	at := func(epoch int) time.Duration { return alone.Flows[epoch].Start + 7*time.Millisecond }
	r.Starts = map[experiment.FlowName]experiment.FlowStart{}
	for epoch := range 2 { // not of the third
		r.Starts[experiment.FlowName{Item: "f", Epoch: epoch}] = experiment.FlowStart{At: law.Duration(at(epoch))}
	}
	raw := ran(t, &World{Laws: laws.Sim()}, r)
	if raw.RTT != alone.RTT {
		t.Errorf("round trip %v, want %v", raw.RTT, alone.RTT)
	}
	for epoch := range raw.Flows {
		f, want := &raw.Flows[epoch], alone.Flows[epoch].Start
		if epoch < 2 {
			want = at(epoch)
		}
		// Its data, and the acknowledgements of its windows: each is delayed by up to the jitter.
		slower := f.FCT() - alone.Flows[epoch].FCT()
		if f.Start != want || slower <= 0 || slower > 20*late {
			t.Errorf("epoch %d begins at %v, want %v, and takes %v longer", epoch, f.Start, want, slower)
		}
	}
	if again := ran(t, &World{Laws: laws.Sim()}, r); Digest(again) != Digest(raw) {
		t.Error("the same run again gives something else")
	}
}

// A program that writes late has a connection meanwhile: its flow takes longer by the delay beyond the handshake. A
// program whose time is over before that sends nothing.
func TestBesideLab_ProgramsWriteLate(t *testing.T) {
	const late = 5 * time.Millisecond
	r := planned(t, baseWith("{name: f, from: sender1, to: receiver1, pattern: burst, size: 100KB}",
		"{name: cut, from: sender1, to: receiver1, pattern: bulk, start: 100ms, stop: 110ms}"))[0]
	fct := func(wrote time.Duration) time.Duration {
		r.Starts = map[experiment.FlowName]experiment.FlowStart{
			{Item: "f"}: {Wrote: law.Duration(wrote)}, {Item: "cut"}: {At: 100e6, Wrote: 20e6},
		}
		raw := ran(t, &World{Laws: laws.Sim()}, r)
		if f := &raw.Flows[1]; f.Bytes != 0 || f.End != 110*time.Millisecond {
			t.Errorf("stopped before its program wrote: %d bytes, ends at %v", f.Bytes, f.End)
		}
		return raw.Flows[0].FCT()
	}
	at, soon, longer := fct(0), fct(1), fct(late)
	if at != soon { // before it is connected
		t.Errorf("%v, and %v written 1 ns after connect()", at, soon)
	}
	if by := longer - at; by > late || by < late-time.Millisecond {
		t.Errorf("written %v after connect() it takes %v longer", late, by)
	}
}

// Long flows run until their stop, are done then, and fill the link between them.
func TestBulk_EndsAtItsStop(t *testing.T) {
	raw := carriedOut(t, baseWith("{name: long, from: \"sender*\", to: receiver1, pattern: bulk, stop: 1500ms}"))
	sum := int64(0)
	for _, f := range raw.Flows {
		if !f.Done || !f.Endless || f.End != 1500*ms || f.Timeouts < 0 {
			t.Errorf("%+v", f)
		}
		sum += f.Bytes
		binned := int64(0)
		for i, d := range f.Delivered {
			binned += int64(d.Bytes)
			if i > 0 && d.Bin <= f.Delivered[i-1].Bin {
				t.Errorf("bins out of order: %v", f.Delivered)
			}
		}
		if binned != f.Bytes {
			t.Errorf("%d bytes in bins, %d in all", binned, f.Bytes)
		}
	}
	// 1448 of 1538 B on the wire are payload: 94.1 Mbit/s.
	within(t, "goodput in Mbit/s", float64(sum)*8/1.5/1e6, 90, 94.2)
}

// A flow that is stopped in its handshake, before it has written anything, leaves its connection at once. Another
// connection may use its endpoint then. Starts have a jitter below one RTT, so the stop after one RTT is in the handshake.
func TestCBR_StoppedInItsHandshake(t *testing.T) {
	raw := carriedOut(t, baseWith("{name: short, from: sender1, to: receiver1, pattern: cbr, rate: 10Mbit, stop: 400us}",
		"{name: long, from: sender1, to: receiver1, pattern: bulk, start: 5ms, stop: 1900ms}"))
	if len(raw.Flows) != 2 {
		t.Fatalf("%d flows", len(raw.Flows))
	}
	short, long := &raw.Flows[0], &raw.Flows[1]
	if short.Group != "short" || short.Bytes != 0 || short.End != 400*us {
		t.Errorf("short: %d bytes, ends at %v", short.Bytes, short.End)
	}
	if !long.Done || long.End != 1900*ms {
		t.Errorf("long: done %v, ends at %v", long.Done, long.End)
	}
	within(t, "goodput of long in Mbit/s", float64(long.Bytes)*8/1.895/1e6, 90, 94.2)
}

// A closed loop sends its requests one after the other on each of its connections, and no more.
func TestClosedLoop_NextRequestFollowsTheLastAnswer(t *testing.T) {
	for _, c := range []struct {
		how  string
		keys int // different connections
	}{{"connection: new", 20}, {"connection: persistent", 2}, {"connection: persistent, data: pull", 2}, {"data: pull", 20}} {
		raw := carriedOut(t, baseWith("{name: f, from: sender1, to: receiver1, pattern: closed_loop, size: 5KB, requests: 20, concurrency: 2, "+c.how+"}"))
		if len(raw.Flows) != 20 {
			t.Fatalf("%s: %d flows", c.how, len(raw.Flows))
		}
		keys, epochs := map[result.Key]bool{}, map[int]bool{}
		last := map[int]time.Duration{}
		for _, f := range raw.Flows {
			keys[f.Key], epochs[f.Epoch] = true, true
			if !f.Done || f.Bytes != 5000 || f.Timeouts != 0 {
				t.Errorf("%s: %+v", c.how, f)
			}
			if f.Start < last[f.Mouse] {
				t.Errorf("%s: mouse %d asks at %v, and was not through before %v", c.how, f.Mouse, f.Start, last[f.Mouse])
			}
			last[f.Mouse] = f.End
		}
		if len(keys) != c.keys || len(epochs) != 20 {
			t.Errorf("%s: %d connections, want %d; %d epochs", c.how, len(keys), c.keys, len(epochs))
		}
		if raw.Duration > 400*ms {
			t.Errorf("%s: the run took %v: it does not end with its last flow", c.how, raw.Duration)
		}
	}
}

// Flows of a persistent connection wait for each other; their time starts with their first byte.
func TestPersistent_FlowsOfOneConnectionFollowEachOther(t *testing.T) {
	raw := carriedOut(t, baseWith("{name: f, from: sender1, to: receiver1, pattern: burst, size: 100KB, every: 1ms, epochs: 5, connection: persistent}"))
	if len(raw.Flows) != 5 {
		t.Fatalf("%d flows", len(raw.Flows))
	}
	for i, f := range raw.Flows {
		if !f.Done || f.Key != raw.Flows[0].Key {
			t.Errorf("%+v", f)
		}
		if i > 0 && f.Start < raw.Flows[i-1].End {
			t.Errorf("flow %d starts at %v, the one before ends at %v", i, f.Start, raw.Flows[i-1].End)
		}
	}
}

// A flow older than give_up is aborted, unfinished; the loop continues after it.
func TestGiveUp_AbortsAndGoesOn(t *testing.T) {
	raw := carriedOut(t, baseWith("{name: f, from: sender1, to: receiver1, data: pull, pattern: closed_loop, size: 1MB, requests: 3, give_up: 20ms}"),
		"topology.links=[{between: [switch, receiver1], rate: 50Mbit}]") // so that nothing of the last one waits before the next one's sender
	if len(raw.Flows) != 3 {
		t.Fatalf("%d flows", len(raw.Flows))
	}
	for _, f := range raw.Flows {
		if f.Done || f.FCT() != 20*ms || f.Bytes == 0 || f.Bytes >= 1e6 {
			t.Errorf("%+v", f)
		}
	}
}

// A run that is cancelled is partial: it has the data up to then.
func TestCancelled_IsPartial(t *testing.T) {
	r := planned(t, baseWith("{name: long, from: \"sender*\", to: receiver1, pattern: bulk}"), "duration=1000s", "measure.series=1s")[0]
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	raw, err := (&World{Laws: laws.Sim()}).Run(ctx, r, stopAfter{cancel, new(int)})
	if err != nil || !raw.Partial || raw.Duration <= 0 || raw.Duration >= 1000*time.Second {
		t.Fatalf("%v, %+v", err, raw)
	}
	for _, f := range raw.Flows {
		if f.Done || f.Bytes == 0 || f.End != raw.Duration {
			t.Errorf("%+v", f)
		}
	}
}

// stopAfter cancels when the traffic has begun and progress is reported.
type stopAfter struct {
	cancel context.CancelFunc
	calls  *int
}

func (s stopAfter) Phase(string) {}
func (s stopAfter) At(now, _ law.Duration, _ int) {
	if *s.calls++; now > 0 {
		s.cancel()
	}
}

// UDP sends at its rate without regard to drops: a link drops what it cannot carry.
func TestUDP_KeepsItsRate(t *testing.T) {
	raw := carriedOut(t, baseWith("{name: u, from: \"sender1..2\", to: receiver1, proto: udp, pattern: cbr, rate: 30Mbit, stop: 1s}"))
	for _, f := range raw.Flows {
		// 30 Mbit/s of IP packets of 1500 B, 1472 of them payload: 2500 in a second, some still on their way.
		within(t, "packets", f.Bytes/1472, 2490, 2500)
		if !f.Done || f.Timeouts != 0 || f.Key.Proto != 17 {
			t.Errorf("%+v", f)
		}
	}
	if len(raw.Drops) > 0 {
		t.Errorf("%d drops", len(raw.Drops))
	}
	raw = carriedOut(t, baseWith("{name: u, from: \"sender1..2\", to: receiver1, proto: udp, pattern: cbr, rate: 80Mbit, stop: 1s}"))
	sum := int64(0)
	for _, f := range raw.Flows {
		sum += f.Bytes
	}
	within(t, "Mbit/s", float64(sum)*8/1e6, 94, 96) // 1472 of 1538 B
	if !slices.ContainsFunc(raw.Drops, func(d result.Drop) bool {
		return d.Key == raw.Flows[0].Key && d.Port == "switch->receiver1" && d.Reason == "tail"
	}) {
		t.Errorf("%d drops, none of the first flow at the bottleneck", len(raw.Drops))
	}
}

// A sized flow whose last packets were lost is unfinished once no more can arrive.
func TestUDP_SizedFlowEnds(t *testing.T) {
	raw := carriedOut(t, baseWith("{name: u, from: \"sender*\", to: receiver1, proto: udp, pattern: cbr, rate: 90Mbit, size: 500KB}"))
	unfinished := 0
	for _, f := range raw.Flows {
		if !f.Done {
			unfinished++
		} else if f.Bytes != 500_000 {
			t.Errorf("%+v", f)
		}
	}
	if unfinished == 0 || raw.Duration > 2*time.Second {
		t.Errorf("%d unfinished of flows that have 3.6 times the link's rate; the run took %v", unfinished, raw.Duration)
	}
}

// VMs of one hypervisor reach each other at 10 Gbit/s: 1 MB takes 0.85 ms.
func TestFlow_BetweenVMsOfOneHypervisor(t *testing.T) {
	text := strings.NewReplacer("hypervisors: false", "vms: 2", "{bottleneck", "{out").Replace(
		baseWith("{name: f, from: sender1.vm1, to: sender1.vm2, pattern: burst, size: 1MB}", "{name: g, from: sender1.vm1, to: receiver1.vm1, pattern: burst, size: 1MB}",
			"{name: long, from: sender1.vm1, to: sender1.vm2, pattern: bulk, stop: 2ms, group: f}"))
	for _, f := range carriedOut(t, text).Flows {
		if !f.Done || f.Timeouts > 0 || (f.Group == "f") != (f.FCT() < 2*ms) {
			t.Errorf("%+v", f)
		}
	}
}

// Every connection has its own key, and every drop has the key of a flow.
func TestKeys_DropsBelongToFlows(t *testing.T) {
	raw := carriedOut(t, baseWith(
		"{name: long, from: \"sender*\", to: receiver1, pattern: bulk, count: 3}",
		"{name: mice, from: \"sender*\", to: receiver1, data: pull, pattern: burst, size: 20KB, every: 50ms, epochs: 30, cc: cubic}"))
	keys := map[result.Key]string{}
	for _, f := range raw.Flows {
		if other, taken := keys[f.Key]; taken {
			t.Fatalf("%s and %s share %v", other, f.Group, f.Key)
		}
		keys[f.Key] = f.Group
	}
	if len(raw.Drops) < 10 {
		t.Fatalf("%d drops", len(raw.Drops))
	}
	for _, d := range raw.Drops {
		if keys[d.Key] == "" && keys[d.Key.Reverse()] == "" {
			t.Errorf("a drop of no flow: %+v", d)
		}
	}
	if len(raw.Unmet) > 0 {
		t.Errorf("unmet: %s", raw.Unmet)
	}
}
