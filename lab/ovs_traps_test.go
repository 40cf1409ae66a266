package lab

import (
	"bytes"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/mark"
	"weir/datapath/testnet"
	"weir/internal/nic"
	"weir/law"
)

// Trap 1. A host that leaves its checksums to the hardware sends segments through an Open vSwitch in user space
// that no host accepts; a lab's hosts do not do that. Between bridges they use the offload, as real hosts do.
func TestOVS_HostsFinishTheirChecksums(t *testing.T) {
	for kind, want := range map[string]bool{"bridge": true, "ovs": false} {
		t.Run(kind, func(t *testing.T) {
			g := dumbbell(1, true)
			if kind == "ovs" {
				onOVS(t, g)
			}
			l := up(t, "checksums", g.config())
			inUserSpace(t, l)
			in := testnet.NewRaw(t, portOf(t, l, "switch->sender1"))
			if got := unfinished(t, l, in); got != want {
				t.Errorf("a frame from a host has an unfinished checksum: %t, want %t", got, want)
			}
			for node, device := range map[string]string{"sender1": "eth0", "sender1.hv": "up"} {
				err := l.Enter(node, func() error {
					tool, err := nic.Open()
					if err != nil {
						return err
					}
					defer tool.Close()
					return tool.Change(device, map[string]bool{"tx-checksum-ip-generic": true})
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			if !unfinished(t, l, in) {
				t.Error("with the offload on checksums are finished: this test sees nothing")
			}
		})
	}
}

// inUserSpace skips the test of a trap that the kernel's datapath does not have.
func inUserSpace(t *testing.T, l *Lab) {
	t.Helper()
	if o, ok := l.fabric.(ovs); ok && o.kernel {
		t.Skip("openvswitch.ko is loaded: it forwards frames as they are, one by one; this trap exists only without it")
	}
}

// unfinished sends a datagram to receiver1 and reports whether its checksum is unfinished at the switch.
func unfinished(t *testing.T, l *Lab, in *testnet.Raw) bool {
	t.Helper()
	text := []byte("checksum-of-this")
	if _, err := udp(t, l, "sender1").WriteTo(text, discard(l)); err != nil {
		t.Fatal(err)
	}
	return in.Receive(t, func(frame []byte) bool { return bytes.Contains(frame, text) }).Partial
}

// discard is an address at receiver1 where nothing listens.
func discard(l *Lab) net.Addr {
	return &net.UDPAddr{IP: l.Addr("receiver1", 0).AsSlice(), Port: 9}
}

// udp opens a UDP socket in a node, with a buffer large enough for any test.
func udp(t *testing.T, l *Lab, node string) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	err := l.Enter(node, func() (err error) {
		c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: l.Addr(node, 0).AsSlice()})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := control(c, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20) }); err != nil {
		t.Fatal(err)
	}
	return c
}

// Trap 2. A queue may grow to its limit, beyond the usual buffer of a packet socket, and other ports lose nothing
// meanwhile. The same holds after a restart.
func TestOVS_AFullQueueHurtsNoOtherPort(t *testing.T) {
	const limit, frames, beside = 900_000, 700, 200
	g := onOVS(t, dumbbell(2, false))
	g.Links[len(g.Links)-1].Rate, g.Links[len(g.Links)-1].Buffer = 250_000, law.Limit{N: limit}
	// The switch may get the processor late and send all waiting frames at once: the idle port's own queue has
	// room for them.
	g.Links[1].Buffer = law.Limit{N: limit} // sender2's
	l := up(t, "sendbuffer", g.config())
	inUserSpace(t, l)
	full, from, idle := portOf(t, l, "switch->receiver1"), udp(t, l, "sender1"), udp(t, l, "sender2")
	send := func(to net.Addr, count int) {
		for range count {
			if _, err := from.WriteTo(make([]byte, 1200), to); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 {
		// After the flood, on the same path to the switch: when the last of these arrives, the flood is in the
		// queue.
		send(discard(l), frames)
		send(idle.LocalAddr(), beside)
		for range beside {
			if err := idle.SetReadDeadline(time.Now().Add(testnet.Patience)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := idle.ReadFrom(make([]byte, 2000)); err != nil {
				t.Fatalf("an idle port lost a frame beside a full one: %v", err)
			}
		}
		if q := testnet.Queue(t, full); q.BacklogBytes < frames/2*1200 {
			t.Errorf("the queue shows %d bytes of some %d", q.BacklogBytes, frames*1200)
		}
		if err := l.RestartSwitch("switch"); err != nil {
			t.Fatal(err)
		}
	}
}

// Trap 3. Ports have the queues that were set, and the same ones after a restart.
func TestOVS_LeavesTheQueuesAlone(t *testing.T) {
	l := up(t, "queues", onOVS(t, dumbbell(1, false)).config())
	if err := talk(l, "sender1", "receiver1", 0); err != nil {
		t.Fatal(err)
	}
	before := sentByPort(t, l)
	for _, when := range []string{"at first", "after a restart"} {
		for _, p := range l.Ports() {
			q, ok := rootQdisc(t, l, p).(*netlink.Tbf)
			if !ok || q.Rate != uint64(p.Rate)/8 || q.Limit != uint32(p.Buffer) {
				t.Fatalf("%s, %s has %+v", when, p.Name, rootQdisc(t, l, p))
			}
		}
		for name, sent := range sentByPort(t, l) {
			if sent < before[name] || sent == 0 {
				t.Errorf("%s, the queue of %s has sent %d bytes, and %d before: it is another one", when, name, sent, before[name])
			}
		}
		if err := l.RestartSwitch("switch"); err != nil {
			t.Fatal(err)
		}
	}
}

// Trap 4. A restarted switch forwards as before, and floods nothing, although it has learned no address.
func TestOVS_RestartForwardsAsBefore(t *testing.T) {
	g := onOVS(t, chain(2, false))
	l := up(t, "restart", g.config())
	d, err := l.ovsDaemons(l.plan.byName["switch1"])
	if err != nil {
		t.Fatal(err)
	}
	old, err := d.pid(forwarder)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.RestartSwitch("switch1"); err != nil {
		t.Fatal(err)
	}
	if now, err := d.pid(forwarder); err != nil || now == old {
		t.Errorf("process %d after the restart, %v, and %d before", now, err, old)
	}
	before := sentByPort(t, l)
	if err := talk(l, "sender1", "receiver2", 0); err != nil {
		t.Fatal(err)
	}
	for name, sent := range sentByPort(t, l) {
		flooded := strings.Contains(name, "receiver1") || strings.Contains(name, "sender2")
		if moved := sent != before[name]; moved == flooded {
			t.Errorf("%s sent %d bytes more", name, sent-before[name])
		}
	}
	if text := askOVS(t, l, "switch1", "fdb/show", bridgeName); strings.Count(text, "static") != 4 {
		t.Errorf("the restarted switch knows\n%s", text)
	}
	if err := l.RestartSwitch("sender1"); err == nil || !strings.Contains(err.Error(), `no Open vSwitch "sender1"`) {
		t.Errorf("restart of a guest: %v", err)
	}
}

// Trap 7. In a slow lab switches forward in turns, also after a restart; in a fast lab a turn would be too short.
func TestOVS_ForwardsInTurns(t *testing.T) {
	for _, c := range []struct {
		scale                float64
		switches, processors int
		want                 turn
	}{
		{1, 7, 2, turn{}},
		{49, 7, 2, turn{}},
		{50, 1, 2, turn{250 * time.Microsecond, 500 * time.Microsecond}},
		{100, 8, 2, turn{200 * time.Microsecond, time.Millisecond}},
		{100, 0, 2, turn{}},
	} {
		if got := turnOf(c.scale, c.switches, c.processors); got != c.want {
			t.Errorf("turn at scale %g of %d switches on %d processors: %v, want %v", c.scale, c.switches, c.processors, got, c.want)
		}
	}
	g := onOVS(t, chain(2, false))
	l, err := Up(t.Context(), testName("turns"), g.config(), Options{Owned: true, Scale: 100})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	d, err := l.ovsDaemons(l.plan.byName["switch1"])
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		pid, err := d.pid(forwarder)
		if err != nil {
			t.Fatal(err)
		}
		attr, err := unix.SchedGetAttr(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		if attr.Policy != unix.SCHED_DEADLINE && takesTurns(pid, turnOf(100, 2, runtime.NumCPU())) {
			t.Errorf("ovs-vswitchd is scheduled as %+v, though the kernel has capacity for its turns", attr)
		}
		if attr.Policy == unix.SCHED_DEADLINE && attr.Period != uint64(time.Millisecond) {
			t.Errorf("ovs-vswitchd is scheduled as %+v", attr)
		}
		if err := talk(l, "sender1", "receiver2", 0); err != nil {
			t.Fatal(err)
		}
		if err := l.RestartSwitch("switch1"); err != nil {
			t.Fatal(err)
		}
	}
}

// takesTurns reports whether the kernel lets a process have these turns. It refuses when other labs have its capacity.
func takesTurns(pid int, t turn) bool {
	return unix.SchedSetAttr(pid, t.attr(), 0) == nil
}

// Trap 5. Of several frames that arrive together, each one without room is refused, once, and the others are not
// dropped with it.
func TestOVS_RefusedFramesTakeNoOthersAlong(t *testing.T) {
	const frames, fit = 500, 4
	g := onOVS(t, dumbbell(1, false))
	g.Links[len(g.Links)-1].Rate, g.Links[len(g.Links)-1].Buffer = 250_000, law.Limit{N: fit * frameBytes}
	l := up(t, "refused", g.config())
	inUserSpace(t, l)
	n := l.plan.byName["switch"]
	d, err := l.ovsDaemons(n)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := d.pid(forwarder)
	if err != nil {
		t.Fatal(err)
	}
	// While it sleeps frames collect; it then handles them 32 at a time.
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	from := udp(t, l, "sender1")
	for range frames {
		if _, err := from.WriteTo(make([]byte, frameBytes-42), discard(l)); err != nil {
			t.Fatal(err)
		}
	}
	// One frame left that never arrived: that of createSendSocket.
	missing := func() (lost, refused uint64) {
		_, lost, refused, err := l.countFrames(n)
		if err != nil {
			t.Fatal(err)
		}
		return lost + 1, refused
	}
	testnet.Until(t, "all frames wait for the switch", func() bool { lost, _ := missing(); return lost == frames })
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// The counters are read one after the other, and change meanwhile.
	var lost, refused uint64
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%d frames were lost, and %d refused", lost, refused)
		}
	})
	testnet.Until(t, "every lost frame was refused", func() bool {
		lost, refused = missing()
		return lost == refused && lost <= frames-fit
	})
	if lines := l.troubleOfSwitches(); len(lines) > 0 {
		t.Errorf("trouble: %v", lines)
	}
}

// A frame that a law drops still causes the loss of others, and losses without a full queue are reported.
func TestOVS_ReportsLostFrames(t *testing.T) {
	g := onOVS(t, dumbbell(1, false))
	g.Links[len(g.Links)-1].Rate = mbit
	l := up(t, "lost", g.config())
	inUserSpace(t, l)
	marking, err := mark.Attach(l.switchPorts([]string{"switch"}), mark.Config{Action: mark.ActionDrop})
	if err != nil {
		t.Fatal(err)
	}
	defer marking.Close()
	if lines := l.troubleOfSwitches(); len(lines) > 0 {
		t.Fatalf("at first: %v", lines)
	}
	from := udp(t, l, "sender1")
	for range 200 {
		if _, err := from.WriteTo(make([]byte, 1000), discard(l)); err != nil {
			t.Fatal(err)
		}
	}
	testnet.Until(t, "the law's drops are missed", func() bool {
		got := strings.Join(l.troubleOfSwitches(), "\n")
		return strings.HasPrefix(got, "topology.switch ovs on switch: it lost ") && strings.Contains(got, "full queues refused 0")
	})
}
