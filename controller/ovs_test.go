package controller

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/datapath/testnet"
)

// beController is the controller's process.
func beController(file string) {
	c, err := Load(file, nil)
	if err == nil && os.Getenv(testPause) != "" {
		c.beforeDraw = sync.OnceFunc(stopHere)
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
		err = Run(ctx, c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // the context is of no use any more
	}
	os.Exit(0)
}

// stopHere stops this process. The kernel may let the calling thread run on for a moment, which must not take the lock
// of the generation file in it: it waits for the SIGCONT.
func stopHere() {
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	defer signal.Stop(goesOn)
	if syscall.Kill(os.Getpid(), syscall.SIGSTOP) == nil {
		<-goesOn
	}
}

// Four racks of seven hosts under two spines, on Open vSwitch: everybody reaches everybody, and goes on to
// do so after a link is cut, the controller is killed, and the switches are.
func TestRacks(t *testing.T) {
	t.Parallel()
	r := newRacks(t, 4, 2, 7)
	r.connect(t)
	r.startController()
	begun := time.Now()
	r.settled(t, 8)
	t.Logf("links found after %v", time.Since(begun).Round(time.Millisecond))
	again := r.reach(t)
	s := r.settled(t, 8)
	if len(s.Forward.Hosts) != 28 || s.Core.OrdersRefused != 0 {
		t.Errorf("%d hosts, %d orders refused: should be 28 and none", len(s.Forward.Hosts), s.Core.OrdersRefused)
	}
	t.Logf("all pairs after %v, %d asked again", time.Since(begun).Round(time.Millisecond), again)
	t.Run("spread", func(t *testing.T) { r.spread(t) })
	t.Run("pinned", func(t *testing.T) {
		var up, down []int
		// A link whose probes are late on a busy machine ends for a moment, and pinned paths change with it.
		for changed, try := true, 0; changed; try++ { // with another port, because the last one is still in TIME-WAIT
			waves := r.settled(t, 8).Forward.Counts.Waves
			up, down = r.pinnedTransfer(t, try)
			changed = r.settled(t, 8).Forward.Counts.Waves != waves
		}
		t.Logf("segments up %v, down %v", up, down)
		// 1 MB is 725 segments; acknowledgements are at least one for every 64 KB.
		way := 0
		if up[1] > up[0] {
			way = 1
		}
		if up[way] < 700 || up[1-way] != 0 || down[way] < 16 || down[1-way] != 0 {
			t.Errorf("by spine 1 and 2: segments of data %v, back %v: all should pass the same one", up, down)
		}
	})
	t.Run("link", func(t *testing.T) {
		r.setCable(t, leafSpine(1, 1), false)
		r.settled(t, 7)
		t.Logf("%d asked again", r.reach(t))
		r.setCable(t, leafSpine(1, 1), true)
		r.settled(t, 8)
		r.reach(t)
	})
	t.Run("controller", func(t *testing.T) {
		r.controller.Kill()
		if n := r.reachWithin(t, testnet.Patience); n != 0 { // one that is only late is not lost
			t.Errorf("%d datagrams were lost while the controller was away", n)
		}
		r.startController()
		if s := r.settled(t, 8); len(s.Forward.Hosts) != 28 {
			t.Errorf("%d hosts: should be 28, as found on the switches", len(s.Forward.Hosts))
		} else {
			t.Logf("%d changes to take over", s.Core.Changes)
		}
		r.reach(t)
	})
	t.Run("switches", func(t *testing.T) {
		r.Switches.Kill()
		r.StartSwitches("-vconsole:err")
		r.settled(t, 8)
		r.reach(t)
	})
}

// spread opens connections from rack 1 to rack 2: each spine gets half of them, within 10 %, which are 5.5 standard
// deviations.
func (r *racks) spread(t *testing.T) {
	got := r.connections(t, r.hosts[0], r.hosts[r.perLeaf], 20000)
	t.Logf("%d flows: %d by spine 1, %d by spine 2", spreadFlows, got[0], got[1])
	if got[0]+got[1] != spreadFlows {
		t.Errorf("%d flows left by the spines: %d by spine 1, %d by spine 2", spreadFlows, got[0], got[1])
	}
	for s, n := range got {
		if n < spreadFlows*45/100 || n > spreadFlows*55/100 {
			t.Errorf("spine %d got %d of %d", s+1, n, spreadFlows)
		}
	}
}

// A machine whose address is on its bridge's own port, as of a hypervisor, keeps its network under Weir.
func TestOwnPortOfABridge(t *testing.T) {
	r := newRacks(t, 1, 0, 1)
	own := &host{ns: r.fabric, ip: net.IPv4(10, 0, 9, 9)}
	r.fabric.Must(t, func() error {
		link, err := netlink.LinkByName("leaf1")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: own.ip, Mask: net.CIDRMask(16, 32)}}); err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
	r.connect(t)
	r.startController()
	testnet.Until(t, "the machine reaches the host", func() bool { return r.asks(own, r.hosts[0], 2*time.Second) == nil })
	if s := r.status(t); s.Core.OrdersRefused != 0 {
		t.Errorf("%d orders refused", s.Core.OrdersRefused)
	}
}

// A flow of somebody else in a table that Weir uses: the switch is left alone, flow and all.
func TestForeignFlowIsLeftAlone(t *testing.T) {
	r := newRacks(t, 1, 1, 1)
	r.connect(t) // drops all flows that were there
	r.ofctl(t, "add-flow", "leaf1", "table=0,priority=5,cookie=0x77,arp,actions=drop")
	r.ofctl(t, "add-flow", "spine1", "table=9,priority=5,cookie=0x77,arp,actions=drop")
	r.startController()
	var s *Status
	testnet.Until(t, "one joined, one refused", func() bool {
		s = r.status(t)
		return s != nil && len(s.Refused) == 1 && len(s.Forward.Switches) == 1
	})
	if why := s.Refused["0000000000000001"]; !strings.Contains(why, "cookie 0x77") {
		t.Errorf("refused: %v", s.Refused)
	}
	if out := r.ofctl(t, "dump-flows", "leaf1"); strings.Count(out, "cookie=") != 1 || !strings.Contains(out, "cookie=0x77") {
		t.Errorf("leaf1 has been touched:\n%s", out)
	}
	if out := r.ofctl(t, "dump-flows", "spine1"); !strings.Contains(out, "cookie=0x77") || !strings.Contains(out, "cookie=0x57454952") {
		t.Errorf("spine1:\n%s", out)
	}
}
