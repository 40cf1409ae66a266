package soak

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// released is how long after the death of its owner a grant may limit packets. It follows from leases of the kernel, so it holds
// on a machine of any speed.
const released = 1500 * time.Millisecond

const outage = 3 * time.Second // of faults that last

// fault is one of the ways to break the system. It returns when control is back, and from when on that is measured.
type fault struct {
	name  string
	in    func(w *world) bool // whether it is possible in a world
	limit time.Duration
	run   func(s *soak) (since, back time.Time)
}

func anywhere(*world) bool      { return true }
func external(w *world) bool    { return w.external }
func embedded(w *world) bool    { return !w.external }
func openVSwitch(w *world) bool { return w.ovs != nil }
func steppedClocks(*world) bool { return canStep }

var faults = []fault{
	{"kill -9 of the controller that is obeyed", external, 2 * time.Second, func(s *soak) (since, back time.Time) {
		active, other := s.active()
		return s.dies(active, func() time.Time { return s.watch.until(s.tb, time.Now(), other) })
	}},
	{"kill -9 of the controller that waits", external, 2 * time.Second, func(s *soak) (since, back time.Time) {
		active, other := s.active()
		return s.lasts(other.kill, other.start, active, other)
	}},
	{"kill -9 of a server of the bus", external, 2 * time.Second, func(s *soak) (since, back time.Time) {
		active, other := s.active()
		n := s.w.servers[s.random.IntN(len(s.w.servers))]
		return s.lasts(n.kill, n.start, active, other)
	}},
	{"kill -9 of the controller that is obeyed and of the store's leader", external, 10 * time.Second, func(s *soak) (since, back time.Time) {
		active, other := s.active()
		leader := s.w.leader()
		leader.kill()
		since, back = s.dies(active, func() time.Time { return s.watch.until(s.tb, time.Now(), other) })
		leader.start()
		return since, back
	}},
	{"kill -9 of the controller with the bus in it", embedded, 2 * time.Second, func(s *soak) (_, back time.Time) {
		var restarted time.Time
		c := s.w.controls[0]
		_, back = s.dies(c, func() time.Time {
			restarted = time.Now()
			c.start()
			return s.watch.until(s.tb, restarted, c)
		})
		return restarted, back
	}},
	{"kill -9 of the agent", anywhere, 2 * time.Second, func(s *soak) (_, back time.Time) {
		active, other := s.active()
		window := active.window()
		died := time.Now()
		s.w.agent.kill()
		s.gone(died, window)
		restarted := time.Now()
		s.w.agent.start()
		return restarted, s.watch.until(s.tb, restarted, active, other)
	}},
	{"SIGSTOP of the controller that is obeyed", anywhere, 2 * time.Second, func(s *soak) (since, back time.Time) {
		active, other := s.active()
		window := active.window()
		since = time.Now()
		active.signal(syscall.SIGSTOP)
		if s.w.external {
			back = s.watch.until(s.tb, since, other)
		}
		s.gone(since, window)
		s.hold(since)
		active.signal(syscall.SIGCONT)
		if !s.w.external {
			since = time.Now()
			back = s.watch.until(s.tb, since, active)
		}
		return since, back
	}},
	{"SIGSTOP of the agent", anywhere, 2 * time.Second, func(s *soak) (_, back time.Time) {
		active, other := s.active()
		since, window := time.Now(), active.window()
		s.w.agent.signal(syscall.SIGSTOP)
		s.gone(since, window)
		s.hold(since)
		s.w.agent.signal(syscall.SIGCONT)
		since = time.Now()
		return since, s.watch.until(s.tb, since, active, other)
	}},
	{"SIGSTOP of a server of the bus", external, 10 * time.Second, func(s *soak) (since, back time.Time) {
		active, other := s.active()
		n := s.w.servers[s.random.IntN(len(s.w.servers))]
		return s.lasts(func() { n.signal(syscall.SIGSTOP) }, func() { n.signal(syscall.SIGCONT) }, active, other)
	}},
	{"a cut link", anywhere, 10 * time.Second, func(s *soak) (since, back time.Time) {
		active, other := s.active()
		n := s.anyNode()
		return s.lasts(func() { s.link(n, false) }, func() { s.link(n, true) }, active, other)
	}},
	{"a link that carries nothing to its machine", anywhere, 10 * time.Second, func(s *soak) (since, back time.Time) {
		active, other := s.active()
		n := s.anyNode()
		return s.lasts(func() { s.shape(s.w.mgmt.Enter, n.name, true, 0) }, func() { s.shape(s.w.mgmt.Enter, n.name, false, 0) }, active, other)
	}},
	{"a link that carries nothing from its machine", anywhere, 10 * time.Second, func(s *soak) (since, back time.Time) {
		active, other := s.active()
		n := s.anyNode()
		return s.lasts(func() { s.shape(n.ns.Enter, "mgmt0", true, 0) }, func() { s.shape(n.ns.Enter, "mgmt0", false, 0) }, active, other)
	}},
	{"a link of 64 kbit/s", anywhere, 10 * time.Second, func(s *soak) (since, back time.Time) {
		active, other := s.active()
		n := s.anyNode()
		return s.lasts(func() { s.shape(n.ns.Enter, "mgmt0", true, 64e3) }, func() { s.shape(n.ns.Enter, "mgmt0", false, 0) }, active, other)
	}},
	{"a full disk under a store", anywhere, 10 * time.Second, func(s *soak) (since, back time.Time) {
		active, other := s.active()
		n := s.w.controls[0]
		if s.w.external {
			n = s.w.servers[s.random.IntN(len(s.w.servers))]
		}
		return s.lasts(func() { s.fill(n, true) }, func() { s.fill(n, false) }, active, other)
	}},
	{"kill -9 of ovs-vswitchd", openVSwitch, 2 * time.Second, func(s *soak) (since, back time.Time) {
		active, other := s.active()
		s.w.ovs.Switches.Kill()
		since = time.Now()
		s.w.ovs.StartSwitches()
		return since, s.watch.until(s.tb, since, active, other)
	}},
	{"a step of a machine's wall clock", steppedClocks, 2 * time.Second, func(s *soak) (since, back time.Time) {
		active, other := s.active()
		n, by := s.anyNode(), time.Duration(1+s.random.IntN(3600))*time.Second
		if s.random.IntN(2) == 0 {
			by = -by
		}
		s.tb.Logf("the clock of %s steps by %v, and back", n.name, by)
		step := func(by time.Duration) func() {
			return func() {
				if err := n.clock.step(by); err != nil {
					s.tb.Fatal(err)
				}
			}
		}
		return s.lasts(step(by), step(0), active, other)
	}},
}

// soak is a world with traffic, and faults one after the other.
type soak struct {
	w      *world
	tb     testingTB
	random *rand.Rand
	watch  *watch
}

// active returns the controller that packets obey now, and the other one.
func (s *soak) active() (active, other *node) {
	s.tb.Helper()
	since := time.Now()
	s.watch.until(s.tb, since, s.w.controls...)
	for _, n := range s.w.controls {
		if s.watch.last(n.window()).After(since) {
			active = n
		} else {
			other = n
		}
	}
	if active == nil {
		s.tb.Fatal("no controller is obeyed")
	}
	if other == nil {
		other = active
	}
	return active, other
}

// dies kills a controller, waits for control, and checks that the grants of the dead one are gone. Then it starts again.
func (s *soak) dies(n *node, control func() time.Time) (since, back time.Time) {
	s.tb.Helper()
	window := n.window()
	since = time.Now()
	n.kill()
	if s.w.external {
		back = control()
		s.gone(since, window)
		n.start()
		return since, back
	}
	s.gone(since, window)
	return since, control()
}

// gone waits until 1.5 s after the death of a grant's owner, and checks that no packet was limited by the grant after that.
func (s *soak) gone(died time.Time, window int) {
	s.tb.Helper()
	limit := died.Add(released)
	s.hold(limit.Add(200*time.Millisecond - outage))
	if last := s.watch.last(window); last.After(limit) {
		s.tb.Errorf("packets had the window %d of %s until %v after its owner's death", window, s.w.windows[window], last.Sub(died))
	}
}

// hold watches packets until outage after since.
func (s *soak) hold(since time.Time) {
	s.tb.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for time.Since(since) < outage {
		<-look.C
		s.watch.look()
	}
}

// lasts has a fault for some time. Control returns after its end at the latest.
func (s *soak) lasts(begin, end func(), of ...*node) (since, back time.Time) {
	s.tb.Helper()
	since = time.Now()
	begin()
	s.hold(since)
	end()
	since = time.Now()
	return since, s.watch.until(s.tb, since, of...)
}

func (s *soak) anyNode() *node {
	all := append(append([]*node{}, s.w.servers...), s.w.controls...)
	all = append(all, s.w.agent)
	return all[s.random.IntN(len(all))]
}

// link cuts a machine's link, or connects it again.
func (s *soak) link(n *node, whole bool) {
	s.tb.Helper()
	s.w.mgmt.Must(s.tb, func() error {
		l, err := netlink.LinkByName(n.name)
		if err != nil {
			return err
		}
		if whole {
			return netlink.LinkSetUp(l)
		}
		return netlink.LinkSetDown(l)
	})
}

// shape limits what a device sends; 0: nothing leaves it, because no packet fits its token bucket.
func (s *soak) shape(enter func(func() error) error, device string, on bool, bps uint64) {
	s.tb.Helper()
	err := enter(func() error {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		burst := uint64(3000)
		if bps == 0 {
			bps, burst = 1e6, 40 // bytes: less than any frame
		}
		q := &netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			Rate:       bps / 8, Limit: 64 << 10, Buffer: uint32(burst * 8 * 15_625_000 / bps), // in ticks of 64 ns
		}
		if !on {
			return netlink.QdiscDel(q)
		}
		return netlink.QdiscReplace(q)
	})
	if err != nil {
		s.tb.Fatalf("shape %s: %v", device, err)
	}
}

// fill fills the file system of a store, or makes room.
func (s *soak) fill(n *node, full bool) {
	s.tb.Helper()
	ballast := filepath.Join(n.path("store"), "ballast")
	n.ns.Must(s.tb, func() error {
		if !full {
			return os.Remove(ballast)
		}
		f, err := os.Create(ballast)
		if err != nil {
			return err
		}
		block := make([]byte, 1<<20)
		for err == nil {
			_, err = f.Write(block)
		}
		if !errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("fill the disk: %w", err)
		}
		return f.Close()
	})
}
