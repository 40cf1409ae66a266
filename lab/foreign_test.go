package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/testnet"
	"weir/experiment"
	"weir/internal/testroot"
	"weir/lab/traffic"
	"weir/law"
)

// stacks returns reno with these TCPs at the sending and the receiving side. (netstack's cubic may stop
// permanently.)
func stacks(from, to string) experiment.Guests {
	g := cubic()
	g.Stack, g.ToStack, g.CC, g.DelayedACK = from, to, "reno", ptr(false)
	return g
}

// mixes are all combinations of stacks that include netstack.
var mixes = [][2]string{{"netstack", "netstack"}, {"linux", "netstack"}, {"netstack", "linux"}}

// upForeign is up, with this process as the netstack guests.
func upForeign(t *testing.T, suffix string, cfg *experiment.Config) *Lab {
	t.Helper()
	testroot.Need(t, "makes network namespaces")
	l, err := Up(t.Context(), testName(suffix), cfg, Options{Owned: true, Netstack: true, Experiment: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// items adds traffic from every sender to receiver1 to a configuration.
func items(cfg *experiment.Config, duration time.Duration, list ...experiment.Traffic) *experiment.Config {
	var pairs []experiment.Pair
	for _, n := range cfg.Graph.Nodes {
		if strings.HasPrefix(n.Name, "sender") {
			pairs = append(pairs, experiment.Pair{Src: n.Name, Dst: "receiver1"})
		}
	}
	for _, traffic := range list {
		cfg.Items = append(cfg.Items, experiment.Item{Traffic: traffic, Pairs: pairs})
	}
	cfg.Duration, cfg.Series = law.Duration(duration), law.Duration(10*time.Millisecond)
	return cfg
}

// makeTraffic runs the traffic of l's configuration once. void lists what invalidates the run for a test of
// something else: frames that this process had no time to read, and connections that netstack forgot (see
// netstack.Trouble).
func makeTraffic(t *testing.T, l *Lab) (out *traffic.Outcome, void []string) {
	t.Helper()
	return makeTrafficUntil(t.Context(), t, l, traffic.Options{})
}

// makeTrafficUntil runs it until ctx is done.
func makeTrafficUntil(ctx context.Context, t *testing.T, l *Lab, o traffic.Options) (out *traffic.Outcome, void []string) {
	t.Helper()
	out, err := traffic.Run(ctx, l, l.plan.cfg, 1, o)
	if err != nil {
		t.Fatal(err)
	}
	lost, stopped := l.troubleOfGuests()
	return out, append(lost, stopped...)
}

// untilWhole repeats try until it is not void, five times at most.
func untilWhole(t *testing.T, try func() (void []string)) {
	t.Helper()
	const tries = 5
	for i := range tries {
		void := try()
		if len(void) == 0 {
			return
		}
		t.Logf("run %d of at most %d is void: %s", i+1, tries, strings.Join(void, "; "))
	}
	t.Fatalf("each of %d runs was void", tries)
}

// runTraffic runs the traffic of l's configuration until a run is not void; none of its flows may fail.
func runTraffic(t *testing.T, l *Lab) (out *traffic.Outcome) {
	t.Helper()
	untilWhole(t, func() (void []string) {
		out, void = makeTraffic(t, l)
		return void
	})
	if len(out.Failures) > 0 {
		t.Errorf("failures %v", out.Failures)
	}
	return out
}

// One flow fills its link with either TCP, and not more: after its start, some of its data always waits before the
// link. The queue loses nothing, because this is not a test of loss recovery. A run in which this process waited
// for the processor is repeated at half the rate: the data before the link then lasts longer than netstack has to
// wait. Other effects of the machine on netstack's round trips may cost one run, but not several.
func TestNetstackFillsALink(t *testing.T) {
	const rounds = 6
	for _, mix := range mixes {
		share, rate := 0.0, 20*mbit
		for round := 0; round < rounds && share < 0.9; round++ {
			var starved bool
			share, starved = fillsLink(t, mix, rate)
			t.Logf("%v: one flow's data waited before its link of %v at %.3f of the looks; kept from the processor: %v", mix, rate, share, starved)
			if starved {
				rate /= 2
			}
		}
		if share < 0.9 {
			t.Errorf("%v: one flow did not fill its link", mix)
		}
	}
}

// fillsLink returns the share of a second in which data of one flow waited before its link, and whether this
// process had to wait for the processor.
func fillsLink(t *testing.T, mix [2]string, rate law.Rate) (share float64, starved bool) {
	t.Helper()
	g := dumbbell(1, false)
	g.Links[0].Rate, g.Links[1].Rate = 1000*mbit, rate // of sender1, of receiver1
	g.Links[1].Buffer = law.Limit{N: 8e6}              // twice a sender's buffer
	cfg := items(g.config(stacks(mix[0], mix[1])), testnet.Patience, experiment.Traffic{Name: "bulk", Pattern: "bulk"})
	cfg.Series = law.Duration(time.Second)
	l := upForeign(t, "nsfill", cfg)
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	seen := make(chan float64, 1)
	at := slices.IndexFunc(l.Ports(), func(p Port) bool { return p.Name == "switch->receiver1" })
	go func() {
		defer enough()
		share, err := queueIsHeld(ctx, l, l.Ports()[at])
		if err != nil {
			t.Error(err)
		}
		seen <- share
	}()
	begun, waited := time.Now(), testnet.RunDelay(t)
	out, void := makeTrafficUntil(ctx, t, l, traffic.Options{})
	starved = testnet.RunDelay(t)-waited > time.Since(begun)/10
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	enough()
	if share = <-seen; len(void) > 0 {
		t.Logf("%v: this run is void: %s", mix, strings.Join(void, "; "))
		share = 0
	}
	if len(out.Failures) > 0 {
		t.Errorf("%v: failures %v", mix, out.Failures)
	}
	seconds := time.Duration(now.Nano() - out.T0).Seconds()
	all, full := 0.0, float64(rate)/8*seconds*1448/1514 // a frame of 1514 B has 1448 B of payload
	for _, d := range out.Flows[0].Delivered {
		all += float64(d.Bytes)
	}
	if all > 1.03*full {
		t.Errorf("%v: one flow took %.3f of its link: %v", mix, all/full, out.Flows[0].Delivered)
	}
	for _, p := range l.Ports() {
		if drops := rootQdisc(t, l, p).Attrs().Statistics.Queue.Drops; drops > 0 {
			t.Errorf("%v: %s dropped %d", mix, p.Name, drops)
		}
	}
	if err := l.Down(); err != nil {
		t.Error(err)
	}
	return share, starved
}

// queueIsHeld reads a port's queue every 10 ms. It returns the share of 100 readings with a backlog, after 50
// readings that follow the first backlog.
func queueIsHeld(ctx context.Context, l *Lab, p Port) (share float64, err error) {
	const warmUp, looks = 50, 100
	var h *netlink.Handle
	err = l.Enter(p.Node, func() (err error) {
		h, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return 0, err
	}
	defer h.Close()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for counted, held := 0, 0; ; {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("the queue of %s was seen %d of %d times before the run ended", p.Name, counted, warmUp+looks)
		case <-look.C:
		}
		backlog, err := queueBacklog(h, p)
		if err != nil {
			return 0, err
		}
		if counted > 0 || backlog > 0 {
			counted++
		}
		if counted > warmUp && backlog > 0 {
			held++
		}
		if counted == warmUp+looks {
			return float64(held) / looks, nil
		}
	}
}

// queueBacklog returns the backlog of a port's queue, in bytes.
func queueBacklog(h *netlink.Handle, p Port) (uint32, error) {
	list, err := h.QdiscList(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: p.Ifindex}})
	for _, q := range list {
		if a := q.Attrs(); a.Parent == netlink.HANDLE_ROOT && a.LinkIndex == p.Ifindex {
			return a.Statistics.Queue.Backlog, nil
		}
	}
	return 0, errors.Join(err, fmt.Errorf("port %s has no queue", p.Name))
}

// Bursts, closed loops and long flows share a bottleneck: all complete, with the right bytes. The mixes run one
// after another: in parallel they would compete for the processor.
func TestNetstackTrafficCompletes(t *testing.T) {
	for _, mix := range mixes {
		t.Run(mix[0]+" to "+mix[1], func(t *testing.T) { netstackTraffic(t, mix) })
	}
}

func netstackTraffic(t *testing.T, mix [2]string) {
	t.Helper()
	g := dumbbell(4, false)
	// receiver1's: the initial windows of four long flows do not fit, however slow their TCP is.
	g.Links[4].Rate, g.Links[4].Buffer = 50*mbit, law.Limit{N: 27, Packets: true}
	cfg := items(g.config(stacks(mix[0], mix[1])), 2*time.Minute,
		experiment.Traffic{Name: "long", Pattern: "bulk", Stop: law.Duration(time.Second)},
		experiment.Traffic{Name: "file", Pattern: "burst", Size: 1_000_000, Every: law.Duration(time.Second), Epochs: 1},
		experiment.Traffic{Name: "burst", Data: "pull", Pattern: "burst", Size: 11_500, Every: law.Duration(100 * time.Millisecond), Epochs: 10},
		experiment.Traffic{Name: "web", Data: "pull", Pattern: "closed_loop", Size: 11_500, Requests: 100, Concurrency: 5},
		experiment.Traffic{Name: "store", Data: "push", Pattern: "closed_loop", Size: 5000, Requests: 100, Concurrency: 2, Connection: "persistent"},
	)
	l := upForeign(t, "nsall", cfg)
	out := runTraffic(t, l)
	count := map[string]int{}
	for _, f := range out.Flows {
		count[f.Item]++
		// long: the network may lose all that was sent in its second.
		want := map[string]int64{"long": f.Bytes, "file": 1_000_000, "burst": 11_500, "web": 11_500, "store": 5000}[f.Item]
		if !f.Done || f.Bytes != want || f.Timeouts < 0 {
			t.Errorf("%v: %s %s->%s %d.%d: done %v, %d B, %d timeouts", mix, f.Item, f.Src, f.Dst, f.Mouse, f.Epoch, f.Done, f.Bytes, f.Timeouts)
		}
	}
	checkDropsAreTheSwitchs(t, l, fmt.Sprint(mix))
	if want := map[string]int{"long": 4, "file": 4, "burst": 40, "web": 400, "store": 400}; fmt.Sprint(count) != fmt.Sprint(want) {
		t.Errorf("%v: flows %v, want %v", mix, count, want)
	}
	if err := l.Down(); err != nil {
		t.Error(err)
	}
}

// checkDropsAreTheSwitchs checks that only the network's queues drop packets, not the sender's own.
func checkDropsAreTheSwitchs(t *testing.T, l *Lab, what string) {
	t.Helper()
	for _, p := range l.Ports() {
		drops := rootQdisc(t, l, p).Attrs().Statistics.Queue.Drops
		if (p.Name == "switch->receiver1") != (drops > 0) {
			t.Errorf("%s: %s dropped %d", what, p.Name, drops)
		}
	}
}

// The kernel of a netstack guest is silent: a connection to a closed port is refused once.
func TestTheKernelBelowNetstackIsSilent(t *testing.T) {
	cfg := items(dumbbell(1, false).config(stacks("linux", "netstack")), time.Second, experiment.Traffic{Name: "x", Pattern: "bulk"})
	l := upForeign(t, "nssilent", cfg)
	watch := capture(t, l, "switch", "switch->receiver1")
	const asked = 20
	for range asked {
		err := l.Enter("sender1", func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: l.Addr("sender1", 0).As4()}); err != nil {
				return err
			}
			return unix.Connect(fd, &unix.SockaddrInet4{Addr: l.Addr("receiver1", 0).As4(), Port: 7})
		})
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatalf("connect: %v, want refused", err)
		}
	}
	resets := 0
	for _, s := range watch() {
		if !s.rst || s.src != netip.AddrPortFrom(l.Addr("receiver1", 0), 7) {
			t.Errorf("%+v", s)
		}
		resets++
	}
	if resets != asked {
		t.Errorf("%d answers to %d SYNs", resets, asked)
	}
}

func TestNetstackInEveryTopology(t *testing.T) {
	t.Parallel()
	for name, g := range map[string]*graphBuilder{
		"nshv": dumbbell(2, true), "nsracks": racks(2, 2, true), "nsleaf": leafSpine(2, 2, true), "nschain": chain(2, false),
	} {
		cfg := g.config(stacks("netstack", ""))
		var guests []string
		for _, n := range g.Nodes {
			if n.Kind == experiment.Guest {
				guests = append(guests, n.Name)
			}
		}
		for i, from := range guests {
			to := guests[(i+1)%len(guests)]
			cfg.Items = append(cfg.Items, experiment.Item{Pairs: []experiment.Pair{{Src: from, Dst: to}}})
		}
		l := upForeign(t, name, cfg)
		for i, sent := range sentByPort(t, l) {
			if sent != 0 {
				t.Errorf("%s: port %s sent %d bytes before any traffic", name, i, sent)
			}
		}
		for i, from := range guests {
			for j, to := range guests {
				if i == j {
					continue
				}
				if _, err := traffic.RTT(t.Context(), l, from, to, 0); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	}
}

// One node can be Linux for one item and netstack for another; each has its own address.
func TestOneNodeHasBothStacks(t *testing.T) {
	cfg := items(dumbbell(1, false).config(stacks("linux", ""), stacks("netstack", "")), time.Minute,
		experiment.Traffic{Name: "linux", Pattern: "burst", Size: 50_000}, experiment.Traffic{Name: "netstack", Pattern: "burst", Size: 50_000})
	cfg.Items[1].Profile = 1
	l := upForeign(t, "nstwo", cfg)
	for _, node := range []string{"sender1", "receiver1"} {
		if l.Guest(node, 0) != nil || l.Guest(node, 1) == nil {
			t.Errorf("%s: netstack is %v for linux and %v for netstack", node, l.Guest(node, 0), l.Guest(node, 1))
		}
	}
	for _, f := range runTraffic(t, l).Flows {
		want := l.Addr("sender1", map[string]int{"linux": 0, "netstack": 1}[f.Item])
		if !f.Done || f.Bytes != 50_000 || f.Key.Src.Addr() != want {
			t.Errorf("%s: done %v with %d B, from %v, want %v", f.Item, f.Done, f.Bytes, f.Key.Src, want)
		}
	}
}

func TestWhatNetstackCannotDoIsUnmet(t *testing.T) {
	odd := stacks("netstack", "")
	odd.CC, odd.ECN, odd.InitialWindow, odd.DelayedACK = "bbr", ptr(true), ptr(4), ptr(true)
	odd.InitialRTO, odd.RTOMin = ptr(law.Duration(3*time.Second)), ptr(law.Duration(10*time.Millisecond))
	cfg := items(dumbbell(1, false).config(odd), time.Second, experiment.Traffic{Name: "x", Pattern: "bulk"})
	l := upForeign(t, "nsunmet", cfg)
	want := []string{
		"guests.cc bbr on receiver1 and 1 more: netstack has reno and cubic",
		"guests.delayed_ack true on receiver1 and 1 more: netstack delays no ACK",
		"guests.ecn true on receiver1 and 1 more: netstack has no ECN",
		"guests.initial_rto 3s on receiver1 and 1 more: netstack always starts with 1s",
		"guests.initial_window 4 on receiver1 and 1 more: netstack always starts with 10 segments",
	}
	if !slices.EqualFunc(l.Unmet(), want, strings.HasPrefix) {
		t.Errorf("unmet %q, want %q", l.Unmet(), want)
	}
	if rtos := l.InitialRTOs(); len(rtos) > 0 {
		t.Errorf("the kernel is asked for the initial RTO of nobody: %v", rtos)
	}
}

// Without a run no process can be the guests: they are Linux, and that is reported.
func TestNetstackByHandIsLinux(t *testing.T) {
	cfg := items(dumbbell(1, false).config(stacks("netstack", "")), time.Second, experiment.Traffic{Name: "x", Pattern: "bulk"})
	l := up(t, "nshand", cfg)
	if err := talk(l, "sender1", "receiver1", 0); err != nil {
		t.Error(err)
	}
	want := []string{"guests.stack netstack on receiver1 and 1 more: netstack works only in a run"}
	if !slices.EqualFunc(l.Unmet(), want, strings.HasPrefix) {
		t.Errorf("unmet %q, want %q", l.Unmet(), want)
	}
}
