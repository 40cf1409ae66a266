package measure

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/datapath/testnet"
	"weir/experiment/result"
	"weir/internal/testroot"
)

// portOf returns a port of a path for the recorder.
func portOf(p attach.PortRef, ns *testnet.Namespace, sample bool) Port {
	return Port{Name: p.Name, Ifindex: p.Ifindex, Enter: p.Enter, NetnsCookie: ns.Cookie, Sample: sample}
}

func start(t *testing.T, ports ...Port) *Recorder {
	t.Helper()
	r, err := Start(ports)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// finish stops a recorder and returns its results since t0; no record may be lost.
func finish(t *testing.T, r *Recorder, t0 int64) (ports []result.Port, drops []result.Drop, end time.Duration) {
	t.Helper()
	end = time.Duration(monotonic() - t0)
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	ports, drops, lost := r.Results(t0, end)
	if lost != 0 {
		t.Errorf("%d records lost", lost)
	}
	return ports, drops, end
}

// checkGrid checks a port's samples: each grid point of [0, end) once.
func checkGrid(t *testing.T, p result.Port, end time.Duration) {
	t.Helper()
	if len(p.Samples) == 0 || p.Samples[0].At < 0 || p.Samples[0].At >= Step {
		t.Fatalf("%s: samples do not start at 0: %d of them", p.Name, len(p.Samples))
	}
	next := p.Samples[0].At
	for i, s := range p.Samples {
		if s.At != next || s.Step != Step || s.Count <= 0 {
			t.Fatalf("%s: sample %d at %s, %d of %s, want %s", p.Name, i, s.At, s.Count, s.Step, next)
		}
		if i > 0 && (s.Sent < p.Samples[i-1].Sent || s.Marks < p.Samples[i-1].Marks) {
			t.Fatalf("%s: counters of sample %d go back: %+v", p.Name, i, s)
		}
		next += time.Duration(s.Count) * Step
	}
	if next < end || next >= end+Step {
		t.Errorf("%s: samples reach %s, the run %s", p.Name, next, end)
	}
}

// startQuiet starts a recorder while no packet passes the ports, and returns their queues' counters at that time.
func startQuiet(t *testing.T, refs []attach.PortRef, ports ...Port) (*Recorder, []attach.RootQueue) {
	t.Helper()
	const rounds = 20
	for range rounds {
		testnet.Quiet(t, refs...)
		before := queues(t, refs)
		r := start(t, ports...)
		// The kernel sends group reports by itself now and then.
		if slices.Equal(before, queues(t, refs)) {
			return r, before
		}
		if err := r.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("in each of %d rounds something passed the ports", rounds)
	return nil, nil
}

func queues(t *testing.T, refs []attach.PortRef) (qs []attach.RootQueue) {
	t.Helper()
	for _, p := range refs {
		qs = append(qs, testnet.Queue(t, p))
	}
	return qs
}

// warm sends packets of each flow until one arrives, so that later ones need no neighbour resolution. A resolution that fails
// drops the packets that wait for it.
func warm(t *testing.T, flows ...*testnet.UDP) {
	t.Helper()
	for _, u := range flows {
		testnet.Until(t, "a packet arrives", func() bool {
			u.Send(t, 1, 100)
			return u.Arrived(t, 0) > 0
		})
	}
}

// count counts drops: by key, and those of no known flow.
func count(drops []result.Drop) (byKey map[result.Key]int, keyless int) {
	byKey = map[result.Key]int{}
	for _, d := range drops {
		byKey[d.Key]++
	}
	keyless = byKey[result.Key{}]
	delete(byKey, result.Key{})
	return byKey, keyless
}

// With more UDP than fits, of two flows, all counts agree to the packet. Drops agree with the queue discipline's own
// counter, each flow's drops with what it sent and did not deliver, and sent bytes with the queue discipline's. No
// backlog is above the limit.
func TestRecorder_AddsUp(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("ipv6=%t", ipv6), func(t *testing.T) { addsUp(t, ipv6) })
	}
}

func addsUp(t *testing.T, ipv6 bool) {
	const limit, packets, payload = 30_000, 1000, 1000
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 20e6, Limit: limit, NoIPv6: !ipv6})
	ip, frame := testnet.ReceiverIPv4, 14+20+8+payload
	if ipv6 {
		ip, frame = testnet.ReceiverIPv6, 14+40+8+payload
	}
	flows := []*testnet.UDP{p.NewUDP(t, ip, 0), p.NewUDP(t, ip, 0)}
	warm(t, flows...)
	refs := []attach.PortRef{p.Port}
	port := portOf(p.Port, p.Switch, true)
	r, before := startQuiet(t, refs, port)
	w := watchDrops(t, port)
	t0 := monotonic()
	for range packets / 10 {
		for _, f := range flows {
			f.Send(t, 10, payload)
		}
	}
	testnet.Quiet(t, refs...)
	after := testnet.Queue(t, p.Port)
	ports, drops, end := finish(t, r, t0)

	checkGrid(t, ports[0], end)
	if want := int(after.Drops - before[0].Drops); len(drops) != want || want == 0 {
		t.Errorf("%d drops seen, the queue counted %d", len(drops), want)
	}
	last := ports[0].Samples[len(ports[0].Samples)-1]
	if want := after.SentBytes - before[0].SentBytes; last.Sent != want || last.Backlog != 0 {
		t.Errorf("%d bytes sent and %d left, the queue counted %d and 0", last.Sent, last.Backlog, want)
	}
	most := int64(0)
	for _, s := range ports[0].Samples {
		most = max(most, s.Backlog)
	}
	if most > limit || most < limit-int64(2*frame) {
		t.Errorf("backlog up to %d, limit %d", most, limit)
	}
	byKey, keyless := count(drops)
	allRecorded(t, r, w)
	total := 0
	for i, f := range flows {
		key := result.Key{Proto: unix.IPPROTO_UDP, Src: addrPort(t, f.Sender.LocalAddr()), Dst: addrPort(t, f.To)}
		n := byKey[key] + f.Arrived(t, packets-byKey[key]-keyless)
		if n > packets || n < packets-keyless {
			t.Errorf("flow %d: %d sent, %d dropped or arrived", i, packets, n)
		}
		total += n
	}
	if total+keyless != len(flows)*packets {
		t.Errorf("%d packets sent, %d dropped or arrived, %d drops of no known flow", len(flows)*packets, total, keyless)
	}
	for _, d := range drops {
		if d.Reason != ReasonTail || d.Port != p.Port.Name || d.At < 0 || d.At > end || d.Key != (result.Key{}) && d.Bytes != frame {
			t.Fatalf("drop %+v", d)
		}
	}
}

func addrPort(t *testing.T, a net.Addr) netip.AddrPort {
	t.Helper()
	p, err := netip.ParseAddrPort(a.String())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TCP with offloads: super-packets reach the queue at the sender, which splits them. Each segment that
// is dropped is seen, and bytes are those that the queue counts.
func TestRecorder_TCPSuperPackets(t *testing.T) {
	for _, offload := range []bool{false, true} {
		t.Run(fmt.Sprintf("offload=%t", offload), func(t *testing.T) {
			p := testnet.NewPath(t, testnet.PathOptions{
				UplinkBps: 50e6, UplinkLimit: 40_000, PortBps: 40e6, Limit: 30_000, GSO: offload, ChecksumOffload: offload, NoIPv6: true,
			})
			refs := []attach.PortRef{p.Uplink, p.Port}
			watched := []Port{portOf(p.Uplink, p.Sender, true), portOf(p.Port, p.Switch, true)}
			r, before := startQuiet(t, refs, watched...)
			w := watchDrops(t, watched...)
			t0 := monotonic()
			flows := p.Transfer(t, testnet.ReceiverIPv4, "reno", 4, 300_000)
			testnet.Quiet(t, refs...)
			after := queues(t, refs)
			for range 10 { // on a machine so slow that a queue did not fill
				if after[0].Drops > before[0].Drops && after[1].Drops > before[1].Drops {
					break
				}
				flows = append(flows, p.Transfer(t, testnet.ReceiverIPv4, "reno", 4, 300_000)...)
				testnet.Quiet(t, refs...)
				after = queues(t, refs)
			}
			ports, drops, end := finish(t, r, t0)
			// The queue counts a super-packet that it did not split once, the drops its packets.
			unsplit := map[string]int{}
			for _, d := range r.drops {
				unsplit[ports[d.Port].Name] += max(int(d.Packets), 1) - 1
			}
			for i, ref := range refs {
				checkGrid(t, ports[i], end)
				last := ports[i].Samples[len(ports[i].Samples)-1]
				if want := after[i].SentBytes - before[i].SentBytes; last.Sent != want {
					t.Errorf("%s: %d bytes sent, the queue counted %d", ref.Name, last.Sent, want)
				}
				got := -unsplit[ref.Name]
				for _, d := range drops {
					if d.Port == ref.Name {
						got++
					}
				}
				if want := int(after[i].Drops - before[i].Drops); got != want || want == 0 {
					t.Errorf("%s: %d drops, the queue counted %d", ref.Name, got, want)
				}
			}
			known := map[result.Key]bool{}
			for _, f := range flows {
				known[result.Key{Proto: unix.IPPROTO_TCP, Src: addrPort(t, f.Sender), Dst: addrPort(t, f.Receiver)}] = true
			}
			byKey, _ := count(drops)
			allRecorded(t, r, w)
			for key := range byKey {
				if !known[key] {
					t.Errorf("drops of an unknown flow: %+v", key)
				}
			}
			t.Logf("%d drops, super-packets not split: %v", len(drops), unsplit)
		})
	}
}

// Samples agree with the kernel's statistics read at the same time. The queue drains slowly, so that a reading and
// the grid points around it have the same value.
func TestRecorder_AgreesWithStatistics(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 1e6, Limit: 60_000, NoIPv6: true})
	u := p.NewUDP(t, testnet.ReceiverIPv4, 0)
	warm(t, u)
	r, before := startQuiet(t, []attach.PortRef{p.Port}, portOf(p.Port, p.Switch, true))
	t0 := monotonic()
	type reading struct {
		from, to time.Duration
		q        attach.RootQueue
	}
	var readings []reading
	seen := map[attach.RootQueue]bool{}
	for wave := 0; len(seen) < 8 || wave < 3; wave++ { // a busy machine may miss a wave
		if wave == 20 {
			t.Fatalf("%d waves of packets were read in %d states only", wave, len(seen))
		}
		u.Send(t, 15, 200+300*(wave%3))
		for waits := true; waits; {
			from := time.Duration(monotonic() - t0)
			q := testnet.Queue(t, p.Port)
			readings = append(readings, reading{from, time.Duration(monotonic() - t0), q})
			seen[q], waits = true, q.BacklogBytes > 0
		}
	}
	ports, _, _ := finish(t, r, t0)
	samples := ports[0].Samples
	type state struct {
		backlog uint32
		sent    uint64
	}
	states, unknown := map[state]bool{}, map[state]bool{}
	for _, x := range readings {
		held := state{x.q.BacklogBytes, x.q.SentBytes - before[0].SentBytes}
		states[held] = true
		if !slices.ContainsFunc(samples, func(s result.Sample) bool {
			// The first grid point after a state began still reports it, however late.
			around := s.At <= x.to+Step && s.At+time.Duration(s.Count)*Step >= x.from
			return around && held == state{uint32(s.Backlog), s.Sent}
		}) {
			unknown[held] = true
		}
	}
	// An event that the kernel did not report hides one state, until the next event: few of many, and of few
	// states one or two.
	if len(unknown) > max(2, len(states)/8) {
		t.Errorf("%d of %d states that were read are in no sample around: %v, %+v", len(unknown), len(states), unknown, samples)
	}
	t.Logf("%d readings, %d states, %d of them in no sample", len(readings), len(states), len(unknown))
}

// Two recorders at the same time, on ports with the same ifindex in different namespaces, see only their own.
func TestRecorder_TwoAtOnce(t *testing.T) {
	a := testnet.NewPath(t, testnet.PathOptions{PortBps: 20e6, Limit: 20_000})
	b := testnet.NewPath(t, testnet.PathOptions{PortBps: 20e6, Limit: 20_000})
	if a.Port.Ifindex != b.Port.Ifindex {
		t.Fatalf("ifindex %d and %d: the test wants them equal", a.Port.Ifindex, b.Port.Ifindex)
	}
	ra, rb := start(t, portOf(a.Port, a.Switch, true)), start(t, portOf(b.Port, b.Switch, true))
	t0 := monotonic()
	a.NewUDP(t, testnet.ReceiverIPv4, 0).Send(t, 200, 1000)
	testnet.Quiet(t, a.Port)
	pa, da, _ := finish(t, ra, t0)
	pb, db, _ := finish(t, rb, t0)
	sent := func(p []result.Port) uint64 { return p[0].Samples[len(p[0].Samples)-1].Sent }
	if len(da) == 0 || len(db) != 0 || sent(pa) < 20_000 || sent(pb) > 5_000 {
		t.Errorf("loaded port: %d drops, %d bytes; idle port: %d drops, %d bytes", len(da), sent(pa), len(db), sent(pb))
	}
}

// A recorder that is stopped at once ends, whether or not its reader has started.
func TestStop_AtOnce(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 20e6, Limit: 20_000})
	for range 8 {
		r, err := Start([]Port{portOf(p.Port, p.Switch, true)})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.Stop(), r.Stop()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStart_Refuses(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 20e6, Limit: 20_000})
	var none *attach.NoQueue
	if _, err := Start([]Port{portOf(p.Port, p.Switch, true), portOf(p.Uplink, p.Sender, true)}); !errors.As(err, &none) || none.Port != p.Uplink.Name {
		t.Errorf("a port without a queue: %v", err)
	}
	if _, err := Start([]Port{{Name: "gone", Ifindex: 4711, Sample: true, Enter: p.Switch.Enter}}); err == nil {
		t.Error("a device that does not exist was taken")
	}
}

// The cost of measuring under load, by the kernel's own statistics.
func TestRecorder_Costs(t *testing.T) {
	testroot.Need(t, "counts what kernel programs cost")
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 200e6, Limit: 60_000})
	r := start(t, portOf(p.Port, p.Switch, true))
	p.Transfer(t, testnet.ReceiverIPv4, "reno", 8, 1_000_000)
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Costs() {
		if c.Events == 0 && c.Program != "weir_drop" {
			t.Errorf("%s never ran", c.Program)
			continue
		}
		t.Logf("%-12s %6d events, %4d ns each", c.Program, c.Events, c.Time.Nanoseconds()/max(int64(c.Events), 1))
	}
}
