package host_test

import (
	"errors"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/datapath/host"
	"weir/datapath/testnet"
	"weir/law"
)

const vmClass = 0x57480010 // of the first VM

// classOfVM returns the statistics of the first VM's class of the uplink: empty ones without a class.
func classOfVM(t testing.TB, n *testnet.Hypervisor) (basic netlink.GnetStatsBasic, queue netlink.GnetStatsQueue) {
	t.Helper()
	n.Host.Must(t, func() error {
		l, err := netlink.LinkByIndex(n.Uplink.Ifindex)
		if err != nil {
			return err
		}
		list, err := netlink.ClassList(l, 0)
		for _, c := range list {
			if a := c.Attrs(); a.Handle == vmClass && a.Statistics != nil && a.Statistics.Basic != nil && a.Statistics.Queue != nil {
				basic, queue = *a.Statistics.Basic, *a.Statistics.Queue
			}
		}
		return err
	})
	return basic, queue
}

// classBytes returns the bytes that the first VM's class of the uplink has sent.
func classBytes(t testing.TB, n *testnet.Hypervisor) uint64 {
	t.Helper()
	basic, _ := classOfVM(t, n)
	return basic.Bytes
}

// A VM limited to a tenth of a link reaches 97 % of its rate or more, in bytes of the queue discipline. Another VM fills the
// rest. The VM sends with cubic, BBR and UDP. After its owner's last heartbeat it is unlimited.
func TestLimiter_ReachesItsRate(t *testing.T) {
	const queued = 250 * time.Millisecond // that the class's queue of 70 kB lasts at 2 Mbit/s
	for _, kind := range []string{"cubic", "bbr", "udp"} {
		t.Run(kind, func(t *testing.T) {
			rate := 20e6
			if kind == "udp" { // a slow machine, too, sends so much
				rate = 2e6
			}
			n := testnet.NewHypervisor(t, 2, 2, testnet.PathOptions{GSO: true, ChecksumOffload: true})
			h := open(t, n, host.Config{Rate: law.Rate(10 * rate)})
			stop := heartbeats(t, h, 1)
			set(t, h, law.Grant{Owner: 1, Kind: law.RateGrant, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: uint64(rate), Lease: time.Minute})
			n.Path(1).NewStreams(t, testnet.PeerIPv4(1), 2)
			away := func() time.Duration { return 0 } // TCP sends without this process
			if kind == "udp" {
				away = n.Path(0).NewUDP(t, testnet.PeerIPv4(0), 0).Flood(t, 50, 1400).Longest // a round fills the queue
			} else {
				n.Path(0).NewStreams(t, testnet.PeerIPv4(0), 2, testnet.Congestion(kind))
			}
			begin := classBytes(t, n)
			testnet.Until(t, "the class sends", func() bool { return classBytes(t, n) > begin+uint64(rate)/8/4 })
			sent := 0.0
			testnet.Until(t, "the VM sends 97 % of its rate for 2 s", func() bool { // BBR needs some seconds after a slow machine kept its ACKs waiting
				away()
				sent = testnet.Rate(t, 2*time.Second, func() uint64 { return classBytes(t, n) })
				t.Logf("%s: %.3f Mbit/s of %.0f", kind, sent/1e6, rate/1e6)
				return away() < queued && sent >= 0.97*rate || sent > 1.03*rate
			})
			if sent > 1.03*rate {
				t.Errorf("%s: %.3f Mbit/s of %.0f", kind, sent/1e6, rate/1e6)
			}
			stop()
			stopped := time.Now()
			relaxed := statsOf(t, h, 1).Relaxed
			testnet.Until(t, "the VM is unlimited", func() bool { return statsOf(t, h, 1).Relaxed > relaxed+100 })
			if took := time.Since(stopped); took > 1500*time.Millisecond {
				t.Errorf("unlimited %v after the last heartbeat", took)
			}
		})
	}
}

// Open refuses an uplink whose queue discipline is not Weir's, and leaves it as it is. Without a rate it does not touch the
// queue. Purge removes all that it made.
func TestLimiter_TouchesOnlyItsOwn(t *testing.T) {
	n := testnet.NewHypervisor(t, 1, 1, testnet.PathOptions{UplinkBps: 50e6, UplinkLimit: 100_000})
	before := testnet.Queue(t, n.Uplink)
	_, err := host.Open(host.Config{Uplink: n.Uplink, Rate: 200e6})
	var busy *host.UplinkBusy
	if !errors.As(err, &busy) || busy.Kind != "tbf" {
		t.Errorf("error %v", err)
	}
	if now := testnet.Queue(t, n.Uplink); now.Anew(before) || testnet.AttachedTo(t, n.Uplink) != 0 {
		t.Errorf("the uplink was changed: %+v", now)
	}
	h := open(t, n, host.Config{})
	if err := h.Heartbeat(1); err != nil {
		t.Fatal(err)
	}
	if err := h.SetGrant(law.Grant{Owner: 1, Kind: law.RateGrant, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: 1e6, Lease: time.Minute}); err == nil {
		t.Error("a rate was granted without a limiter")
	}
	if now := testnet.Queue(t, n.Uplink); now.Anew(before) {
		t.Errorf("the uplink was changed: %+v", now)
	}
	free := testnet.NewHypervisor(t, 1, 1, testnet.PathOptions{})
	kind := testnet.Queue(t, free.Uplink).Kind
	second := open(t, free, host.Config{Rate: 200e6})
	if q := testnet.Queue(t, free.Uplink); q.Kind != "htb" {
		t.Errorf("the queue is %+v", q)
	}
	if err := second.Purge(); err != nil {
		t.Fatal(err)
	}
	if q := testnet.Queue(t, free.Uplink); q.Kind != kind || testnet.AttachedTo(t, free.Uplink)+testnet.AttachedTo(t, free.Ports[0]) != 0 {
		t.Errorf("something is left: %+v", q)
	}
}

// A rate that differs by 2 % or less changes no class. Many changes are spread over time, and none is lost.
func TestLimiter_Coalesces(t *testing.T) {
	n := testnet.NewHypervisor(t, 1, 1, testnet.PathOptions{})
	h := open(t, n, host.Config{Rate: 1e9})
	if err := h.Heartbeat(1); err != nil {
		t.Fatal(err)
	}
	grant := law.Grant{Owner: 1, Kind: law.RateGrant, Key: law.Key{Pair: law.Pair{VM: 1}}, Lease: time.Minute}
	for _, x := range []struct{ wants, has uint64 }{{100e6, 100e6}, {102e6, 100e6}, {98e6, 100e6}, {103e6, 103e6}, {0, 64e3}} {
		grant.Value = x.wants
		set(t, h, grant)
		if has := statsOf(t, h, 1).Rate; has != law.Rate(x.has) {
			t.Errorf("granted %d: the class has %v, want %d", x.wants, has, x.has)
		}
	}
	second := grant
	second.Owner, grant.Value, second.Value = 2, 50e6, 20e6
	if err := h.Heartbeat(2); err != nil {
		t.Fatal(err)
	}
	set(t, h, grant, second)
	if has := statsOf(t, h, 1).Rate; has != 20e6 {
		t.Errorf("the smaller of two rates counts, and the class has %v", has)
	}
	if err := h.Leave(2); err != nil {
		t.Fatal(err)
	}
	if err := h.Sweep(); err != nil {
		t.Fatal(err)
	}
	if has := statsOf(t, h, 1).Rate; has != 50e6 {
		t.Errorf("after the smaller one has ended the class has %v", has)
	}
	const spent = 10 * host.ChangesPerSecond
	if err := h.Heartbeat(1); err != nil {
		t.Fatal(err)
	}
	h.Spend(spent)
	grant.Value = 70e6
	set(t, h, grant)
	if has := statsOf(t, h, 1).Rate; has != 50e6 {
		t.Errorf("the budget of changes is spent, and the class has %v", has)
	}
	h.Spend(-spent)
	if err := h.Sweep(); err != nil {
		t.Fatal(err)
	}
	if has := statsOf(t, h, 1).Rate; has != 70e6 {
		t.Errorf("the change that waited was lost: the class has %v", has)
	}
}

// Somebody removes the limiter while a VM has a rate: it is made again, with the VM's class. Another queue discipline in its place
// stays, and rates are refused as long as it is there.
func TestLimiter_MadeAgain(t *testing.T) {
	n := testnet.NewHypervisor(t, 1, 1, testnet.PathOptions{})
	h := open(t, n, host.Config{Rate: 200e6})
	if err := h.Heartbeat(1); err != nil {
		t.Fatal(err)
	}
	grant := law.Grant{Owner: 1, Kind: law.RateGrant, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: 30e6, Lease: time.Minute}
	set(t, h, grant)
	root := func(change func(link netlink.Link) error) {
		t.Helper()
		err := n.Uplink.In(func() error {
			link, err := netlink.LinkByIndex(n.Uplink.Ifindex)
			if err != nil {
				return err
			}
			return change(link)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	remove := func(link netlink.Link) error {
		return netlink.QdiscDel(netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: 0x57480000}))
	}
	foreign := func(link netlink.Link) *netlink.GenericQdisc {
		return &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(9, 0)}, QdiscType: "pfifo"}
	}
	again := func() {
		t.Helper()
		testnet.Until(t, "the limiter is made again", func() bool {
			_ = errors.Join(h.Heartbeat(1), h.KeepLimiter()) // an error until then
			return testnet.Queue(t, n.Uplink).Kind == "htb" && statsOf(t, h, 1).Rate == 30e6
		})
	}
	again() // nothing happens
	root(remove)
	again()
	root(remove)
	root(func(link netlink.Link) error { return netlink.QdiscAdd(foreign(link)) })
	var busy *host.UplinkBusy
	testnet.Until(t, "the other queue discipline is noticed", func() bool { return errors.As(h.KeepLimiter(), &busy) })
	if err := errors.Join(h.Heartbeat(1), h.SetGrant(grant)); !errors.As(err, &busy) || testnet.Queue(t, n.Uplink).Kind != "pfifo" {
		t.Errorf("a rate behind a %s: %v", testnet.Queue(t, n.Uplink).Kind, err)
	}
	root(func(link netlink.Link) error { return netlink.QdiscDel(foreign(link)) })
	again()
	set(t, h, grant)
}
