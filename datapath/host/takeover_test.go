package host_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
	"weir/datapath/host"
	"weir/datapath/testnet"
	"weir/law"
)

// A second process takes programs, tables and grants over without detaching, and only if it asks to. VMs that it does not add
// again keep their program.
func TestHost_TakeOver(t *testing.T) {
	dir := filepath.Join(testnet.Mount(t, "bpf"), "weir", "host")
	n := testnet.NewHypervisor(t, 2, 1, testnet.PathOptions{})
	c := host.Config{Uplink: n.Uplink, Rate: 200e6, Pin: dir, Version: "test"}
	first, err := host.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n.Guests {
		add(t, first, n, i)
	}
	stream := n.Path(0).NewStreams(t, testnet.PeerIPv4(0), 1)
	if err := first.Heartbeat(1); err != nil {
		t.Fatal(err)
	}
	keepOwner(t, dir, 1) // the owner is a third process
	peer := addr(testnet.PeerIPv4(0))
	set(t, first, window(peer, 1), law.Grant{Owner: 1, Kind: law.RateGrant, Key: law.Key{Pair: law.Pair{VM: 2}}, Value: 30e6, Lease: time.Minute})
	var busy *attach.Busy
	if _, err := host.Open(c); !errors.As(err, &busy) {
		t.Fatalf("a second process was admitted: %v", err)
	}
	if claimed, err := first.Claimed(); err != nil || claimed {
		t.Errorf("claimed: %t, %v", claimed, err)
	}
	before := links(t, dir)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	c.TakeOver = true
	second, err := host.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	add(t, second, n, 0)
	if all := second.VMs(); len(all) != 2 || !all[1] || all[2] {
		t.Errorf("VMs %v", all)
	}
	grants, err := second.Grants(0)
	if err != nil || len(grants) != 2 || !grants[0].Valid || !grants[1].Valid {
		t.Errorf("grants %+v, %v", grants, err)
	}
	if s := statsOf(t, second, 2); s.Rate != 30e6 {
		t.Errorf("VM 2 has a class of %v", s.Rate)
	}
	limited := statsOf(t, second, 1).Limited
	stream.Progress(t, 20*1460)
	if s := statsOf(t, second, 1); s.Limited == limited || s.Unknown != 0 {
		t.Errorf("the connection is no longer limited: %+v", s)
	}
	if after := links(t, dir); after != before || testnet.AttachedTo(t, n.Ports[0]) != 1 {
		t.Errorf("pinned before: %s, after: %s", before, after)
	}
	if err := second.RemoveVM(2); err != nil { // pinned, and never added again
		t.Fatal(err)
	}
	if testnet.AttachedTo(t, n.Ports[1]) != 0 {
		t.Error("VM 2 was removed, and its program is attached")
	}
	if err := second.Purge(); err != nil {
		t.Fatal(err)
	}
	if left := testnet.Pinned(t, dir); len(left) != 0 || testnet.AttachedTo(t, n.Ports[0])+testnet.AttachedTo(t, n.Uplink) != 0 {
		t.Errorf("left: %v", left)
	}
	if q := testnet.Queue(t, n.Uplink); q.Kind == "htb" {
		t.Errorf("left: %+v", q)
	}
}

// The tables of an earlier process have VMs of a namespace that is gone or was left. Open removes them: their ifindexes are
// those of other devices in the uplink's namespace now.
func TestHost_OtherNamespace(t *testing.T) {
	dir := filepath.Join(testnet.Mount(t, "bpf"), "weir", "host")
	before, now := testnet.NewHypervisor(t, 1, 1, testnet.PathOptions{}), testnet.NewHypervisor(t, 1, 1, testnet.PathOptions{})
	first, err := host.Open(host.Config{Uplink: before.Uplink, Pin: dir})
	if err != nil {
		t.Fatal(err)
	}
	add(t, first, before, 0)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := host.Open(host.Config{Uplink: now.Uplink, Pin: dir})
	if err != nil {
		t.Fatal(err)
	}
	if all := second.VMs(); len(all) != 0 || testnet.AttachedTo(t, before.Ports[0]) != 0 {
		t.Errorf("VMs %v are left", all)
	}
	err = second.AddVM(host.VM{Number: 2, Port: now.Ports[0], MAC: now.MACs[0], Addresses: now.Addresses(0)})
	if err != nil || testnet.AttachedTo(t, now.Ports[0]) != 1 {
		t.Errorf("VM 2 was not added: %v", err)
	}
	if err := second.Purge(); err != nil {
		t.Fatal(err)
	}
}

// A process that takes over without a rate, or at another uplink, removes the HTB and the program of the one before. A queue discipline
// that is not Weir's stays.
func TestHost_TakeOverLeavesNothing(t *testing.T) {
	for _, row := range []struct {
		name         string
		other        bool // uplink
		foreign      bool // the operator puts a queue of its own in the HTB's place meanwhile
		rate         law.Rate
		before, then string // queues at the uplink before and at the one now
	}{
		{"without a rate", false, false, 0, "", "noqueue"},
		{"without a rate, with another queue", false, true, 0, "", "pfifo"},
		{"another uplink", true, false, 100e6, "noqueue", "htb"},
		{"another uplink without a rate", true, false, 0, "noqueue", "noqueue"},
		{"another uplink, and another queue at the one before", true, true, 0, "pfifo", "noqueue"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := filepath.Join(testnet.Mount(t, "bpf"), "weir", "host")
			n := testnet.NewHypervisor(t, 1, 1, testnet.PathOptions{})
			first, err := host.Open(host.Config{Uplink: n.Uplink, Rate: 200e6, Pin: dir})
			if err != nil {
				t.Fatal(err)
			}
			add(t, first, n, 0)
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			now := n.Uplink
			n.Host.Must(t, func() error {
				if row.foreign {
					htb := netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: n.Uplink.Ifindex, Parent: netlink.HANDLE_ROOT, Handle: 0x57480000})
					own := &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: n.Uplink.Ifindex, Parent: netlink.HANDLE_ROOT, Handle: 0x10000}, QdiscType: "pfifo"}
					if err := errors.Join(netlink.QdiscDel(htb), netlink.QdiscAdd(own)); err != nil {
						return err
					}
				}
				if !row.other {
					return nil
				}
				if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "other0"}, PeerName: "other1"}); err != nil {
					return err
				}
				l, err := netlink.LinkByName("other0")
				if err != nil {
					return err
				}
				now = attach.PortRef{Name: "other0", Ifindex: l.Attrs().Index, Enter: n.Uplink.Enter}
				return nil
			})
			second, err := host.Open(host.Config{Uplink: now, Rate: row.rate, Pin: dir, TakeOver: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = second.Purge() })
			add(t, second, n, 0)
			if row.other && testnet.AttachedTo(t, n.Uplink) != 0 {
				t.Error("the uplink before has a program")
			}
			if q := testnet.Queue(t, n.Uplink); row.other && q.Kind != row.before {
				t.Errorf("the uplink before has %s, want %s", q.Kind, row.before)
			}
			if q := testnet.Queue(t, now); q.Kind != row.then || testnet.AttachedTo(t, now) != 1 || testnet.AttachedTo(t, n.Ports[0]) != 1 {
				t.Errorf("the uplink has %s, want %s, and a program at each port", q.Kind, row.then)
			}
		})
	}
}

// An Open that fails after it took the uplink's link leaves an earlier process's tables: the programs go on with them.
func TestHost_AbandonKeepsTables(t *testing.T) {
	dir := filepath.Join(testnet.Mount(t, "bpf"), "weir", "host")
	n := testnet.NewHypervisor(t, 1, 1, testnet.PathOptions{})
	c := host.Config{Uplink: n.Uplink, Pin: dir}
	first, err := host.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	before := len(testnet.Pinned(t, dir))
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := host.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Abandon(); err != nil {
		t.Fatal(err)
	}
	if left := testnet.Pinned(t, dir); len(left) != before || testnet.AttachedTo(t, n.Uplink) != 1 {
		t.Errorf("%d pins before, left: %v", before, left)
	}
	third, err := host.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := third.Purge(); err != nil {
		t.Fatal(err)
	}
	fourth, err := host.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := fourth.Abandon(); err != nil {
		t.Fatal(err)
	}
	if left := testnet.Pinned(t, dir); len(left) != 0 || testnet.AttachedTo(t, n.Uplink) != 0 {
		t.Errorf("an Open that fails leaves what it made: %v", left)
	}
}

// An owner that left has its grants removed once. Later sweeps do not look at every grant again.
func TestSweep_SilentOwner(t *testing.T) {
	r := newRig(t, host.Config{})
	for o := law.Owner(1); o <= 2; o++ {
		if err := r.Heartbeat(o); err != nil {
			t.Fatal(err)
		}
	}
	set(t, r.Host, window(peerIPv4, 20000), window(peerIPv6, 20000), law.Grant{Owner: 1, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: 1, Lease: time.Minute},
		law.Grant{Owner: 2, Key: law.Key{Pair: law.Pair{VM: 1, Peer: peerIPv4}}, Value: 1, Lease: time.Minute})
	if err := r.Leave(1); err != nil {
		t.Fatal(err)
	}
	left := func(when string, want int) {
		t.Helper()
		if err := r.Sweep(); err != nil {
			t.Fatal(err)
		}
		if all, err := r.Grants(0); err != nil || len(all) != want {
			t.Errorf("%s: %+v, %v", when, all, err)
		}
	}
	left("while windows are released", 4)
	testnet.Until(t, "owner 1 is silent", func() bool {
		if err := r.Heartbeat(2); err != nil {
			t.Fatal(err)
		}
		return r.OwnersToSweep(t)
	})
	left("afterwards", 1)
	if r.OwnersToSweep(t) {
		t.Error("the next sweep looks at all grants again")
	}
	for range 2 { // it comes back, and leaves again
		if err := r.Heartbeat(1); err != nil {
			t.Fatal(err)
		}
		set(t, r.Host, window(peerIPv6, 20000))
	}
	if err := r.Leave(1); err != nil {
		t.Fatal(err)
	}
	testnet.Until(t, "owner 1 is silent again", func() bool {
		if err := r.Heartbeat(2); err != nil {
			t.Fatal(err)
		}
		return r.OwnersToSweep(t)
	})
	left("the second time", 1)
}

// keepOwner sends heartbeats of an owner for the length of the test.
func keepOwner(t *testing.T, dir string, o law.Owner) {
	t.Helper()
	owner, err := host.OpenOwner(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(host.HeartbeatInterval / 4)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				if err := owner.Heartbeat(); err != nil {
					t.Errorf("heartbeat: %v", err)
				}
			}
		}
	}()
	t.Cleanup(func() { close(end); <-ended; _ = owner.Close() })
}

// links returns the pinned links, as text.
func links(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	for _, name := range testnet.Pinned(t, dir) {
		if strings.HasPrefix(name, "port-") {
			all = append(all, name)
		}
	}
	return strings.Join(all, " ")
}

const holdsVariable = "WEIR_TEST_HOST_PIN"

// TestMain is also the process that TestHost_Killed kills.
func TestMain(m *testing.M) {
	if dir := os.Getenv(holdsVariable); dir != "" {
		fmt.Fprintln(os.Stderr, sendHeartbeats(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// sendHeartbeats sends heartbeats of owner 1 to the tables pinned in a directory. It returns only with an error.
func sendHeartbeats(dir string) error {
	owner, err := host.OpenOwner(dir, 1)
	if err != nil {
		return err
	}
	if err := owner.Heartbeat(); err != nil {
		return err
	}
	fmt.Println("running")
	for range time.Tick(host.HeartbeatInterval) {
		if err := owner.Heartbeat(); err != nil {
			return err
		}
	}
	return nil
}

// kill -9 of the process that sends heartbeats: its pair is released within 1.5 s, without a stall of 300 ms.
func TestHost_Killed(t *testing.T) {
	dir := filepath.Join(testnet.Mount(t, "bpf"), "weir", "host")
	n := testnet.NewHypervisor(t, 1, 1, testnet.PathOptions{UplinkBps: 200e6, UplinkLimit: 250_000, GSO: true, ChecksumOffload: true})
	h := open(t, n, host.Config{Pin: dir})
	t.Cleanup(func() { _ = h.Purge() })
	agent := exec.Command(os.Args[0])
	agent.Env = append(os.Environ(), holdsVariable+"="+dir)
	out, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "running\n" {
		t.Fatalf("%q, %v", line, err)
	}
	stream := n.Path(0).NewStreams(t, testnet.PeerIPv4(0), 1)
	set(t, h, window(addr(testnet.PeerIPv4(0)), 1))
	testnet.Until(t, "the pair is limited", func() bool {
		most, mss := inFlight(t, stream.Pair(0), 1)
		return most <= 2*mss
	})
	stream.Progress(t, 100*1460)
	stream.Mark()
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	limited := statsOf(t, h, 1)
	testnet.Until(t, "the pair is released", func() bool {
		most, _ := inFlight(t, stream.Pair(0), 1)
		return most >= 30*1460
	})
	testnet.Until(t, "ACKs pass untouched", func() bool { return statsOf(t, h, 1).Ungranted > limited.Ungranted })
	took := time.Since(killed)
	stream.Progress(t, 1e6)
	gap := stream.Stall()
	t.Logf("released after %v, longest stall %v", took, gap)
	if took-stream.Paused() > 1500*time.Millisecond || gap > 300*time.Millisecond {
		t.Errorf("released after %v, longest stall %v", took, gap)
	}
}

// While no process runs, two VMs change their ports. The next process adds both, and each port checks its own VM.
func TestHost_PortsChangeHands(t *testing.T) {
	dir := filepath.Join(testnet.Mount(t, "bpf"), "weir", "host")
	n := testnet.NewHypervisor(t, 2, 1, testnet.PathOptions{})
	c := host.Config{Uplink: n.Uplink, Pin: dir, Version: "test"}
	first, err := host.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n.Guests {
		add(t, first, n, i)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := host.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := second.Purge(); err != nil {
			t.Error(err)
		}
	}()
	for i := range n.Guests {
		v := host.VM{Number: law.VM(2 - i), Port: n.Ports[i], MAC: n.MACs[i], Addresses: n.Addresses(i)}
		if err := second.AddVM(v); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n.Guests {
		n.Path(i).NewStreams(t, testnet.PeerIPv4(0), 1).Stop()
		if s := statsOf(t, second, law.VM(2-i)); s.Sent == 0 || s.SpoofedMAC+s.SpoofedIP != 0 {
			t.Errorf("VM %d: %+v", 2-i, s)
		}
	}
	var taken error
	if taken = second.AddVM(host.VM{Number: 3, Port: n.Ports[0], MAC: n.MACs[0], Addresses: n.Addresses(0)}); taken == nil {
		t.Error("a port that a VM of this process has was given to another one")
	}
}
