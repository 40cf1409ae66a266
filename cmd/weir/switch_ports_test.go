package main

import (
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/datapath/testnet"
)

// bridgeReceiver moves the receiver's address to a bridge of its own, so that the switch's port and the device behind
// it can be deleted and made again without losing the addresses.
func (m *machine) bridgeReceiver() {
	m.t.Helper()
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br1", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 1, 1}}}
	m.Receiver.Must(m.t, func() error {
		if err := netlink.LinkAdd(br); err != nil {
			return err
		}
		old, err := netlink.LinkByName("rx0")
		if err != nil {
			return err
		}
		address := &net.IPNet{IP: testnet.ReceiverIPv4, Mask: net.CIDRMask(24, 32)}
		if err := netlink.AddrDel(old, &netlink.Addr{IPNet: address}); err != nil {
			return err
		}
		if err := netlink.AddrAdd(br, &netlink.Addr{IPNet: address}); err != nil {
			return err
		}
		return netlink.LinkSetUp(br)
	})
	testnet.Know(m.t, m.Uplink, br.HardwareAddr, testnet.ReceiverIPv4)
}

// deletePort deletes the switch's port towards the receiver.
func (m *machine) deletePort() {
	m.t.Helper()
	m.Switch.Must(m.t, func() error {
		l, err := netlink.LinkByName("out0")
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
}

// makePort makes the switch's port again, with its shaper and several queues like hardware, and returns its ifindex.
func (m *machine) makePort() (ifindex int) {
	m.t.Helper()
	var receiver *os.File
	m.Receiver.Must(m.t, func() (err error) {
		receiver, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	defer receiver.Close()
	m.Switch.Must(m.t, func() error {
		err := netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "out0", NumTxQueues: 4, TxQLen: 1000}, PeerName: "rx0", PeerNamespace: netlink.NsFd(receiver.Fd()),
		})
		if err != nil {
			return err
		}
		ifindex, err = upInBridge("out0", "br0")
		return err
	})
	m.Receiver.Must(m.t, func() error {
		_, err := upInBridge("rx0", "br1")
		return err
	})
	port := m.Port
	port.Ifindex = ifindex
	testnet.Shape(m.t, port, machineBps, machineBuffer, 2*1514)
	return ifindex
}

func upInBridge(name, bridge string) (ifindex int, err error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return 0, err
	}
	br, err := netlink.LinkByName(bridge)
	if err != nil {
		return 0, err
	}
	if err := netlink.LinkSetMaster(l, br); err != nil {
		return 0, err
	}
	return l.Attrs().Index, netlink.LinkSetUp(l)
}

// deleteUnderTimer deletes the port while its timer runs, and reports whether the timer continued. It does as long as
// flows count or windows are granted, and streams may pause at any moment. weir switch is stopped meanwhile, because it
// may be faster than the timer.
func (m *machine) deleteUnderTimer(p *process, streams *testnet.Streams) (met bool) {
	m.t.Helper()
	p.signal(syscall.SIGSTOP)
	streams.Progress(m.t, 1000)
	testnet.Until(m.t, "flows count", func() bool { return portOf(m.read(), "out0").Flows > 0 })
	m.deletePort()
	testnet.Until(m.t, "the timer met the deleted device, or rests", func() bool {
		out := portOf(m.read(), "out0")
		met = out.DeviceRefused > 0
		return met || out.Flows == 0 && out.GrantBytes == 0
	})
	p.signal(syscall.SIGCONT)
	return met
}

// A port that is deleted and made again under load is managed again within a second, with its former state. Nothing
// acts on the memory of the deleted device, and nothing accumulates.
func TestSwitch_PortsComeAndGo(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	m.bridgeReceiver()
	m.deletePort()
	m.makePort()
	chains := len(m.chains())
	p := m.switchUp("weir")
	streams := m.NewStreams(t, testnet.ReceiverIPv4, 4)
	m.until(p, "windows are limited", m.limited)
	before, pins := m.objects(), len(m.pins())
	var slowest time.Duration
	met := false // a timer met a deleted device
	for range rounds(8, 100) {
		if met {
			m.deletePort()
		} else {
			met = m.deleteUnderTimer(p, streams)
		}
		ifindex := m.makePort()
		made := time.Now()
		m.until(p, "the port is attached again", func() bool {
			port := portOf(m.read(), "out0")
			return port.Ifindex == ifindex && port.HasDevice
		})
		slowest = max(slowest, time.Since(made))
		streams.Progress(t, 1000)
		m.until(p, "its flows are counted again", func() bool { return portOf(m.read(), "out0").Flows > 0 })
	}
	if !met {
		t.Error("no timer ever met a deleted device")
	}
	limit(t, "attached again after it was made", slowest, time.Second)
	s := m.read()
	out := portOf(s, "out0")
	if out.QueueMax > machineBuffer || out.QueueMax == 0 {
		t.Errorf("a backlog of %d bytes was believed, of a queue of %d", out.QueueMax, machineBuffer)
	}
	if out.Opened+portOf(s, "in0").Opened > 5 {
		t.Errorf("the streams did not stay the connections they were: %+v", s)
	}
	t.Logf("%d ticks met a deleted device; longest queue %d of %d; attached again after %v at most", out.DeviceRefused, out.QueueMax, machineBuffer, slowest.Round(time.Millisecond))
	testnet.Until(t, "programs and maps are as many as at first", func() bool {
		now := m.objects()
		return len(now.programs) == len(before.programs) && len(now.maps) == len(before.maps)
	})
	if now := len(m.pins()); now != pins {
		t.Errorf("%d pins, at first %d: %v", now, pins, m.pins())
	}
	if now := len(m.chains()); now != chains+len(ports) {
		t.Errorf("at the ports: %v", m.chains())
	}
}

// Ports that appear later, by name and by pattern; one that loses its queue; one that is not configured after a
// restart. Status reports each.
func TestSwitch_FollowsItsPorts(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	m.bridgeReceiver()
	m.deletePort()
	p := m.start("weir", "switch", "out0", "in*", "--wait", "--json")
	m.until(p, "the port that is there is attached", func() bool { s := m.read(); return s != nil && len(s.Ports) == 1 })
	ifindex := m.makePort()
	m.until(p, "the new port is attached, with a law for its buffer", func() bool {
		out := portOf(m.read(), "out0")
		return out.Ifindex == ifindex && out.TargetBytes == machineBuffer/5
	})

	// Its shaper changes; then it has none.
	port := m.Port
	port.Ifindex = ifindex
	testnet.Shape(t, port, machineBps, 2*machineBuffer, 2*1514)
	m.until(p, "the law follows the shaper", func() bool { return portOf(m.read(), "out0").TargetBytes == 2*machineBuffer/5 })
	m.Switch.Must(t, func() error {
		return netlink.QdiscDel(&netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: ifindex, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0),
		}})
	})
	m.until(p, "the port without a queue is released", func() bool { return portOf(m.read(), "out0").Releasing })
	testnet.Shape(t, port, machineBps, machineBuffer, 2*1514)
	m.until(p, "the port with a queue is limited again, with parameters for its buffer", func() bool {
		out := portOf(m.read(), "out0")
		return !out.Releasing && out.TargetBytes == machineBuffer/5
	})

	p.kill()
	p = m.start("weir", "switch", "out0")
	m.until(p, "the port that is not configured is detached", func() bool {
		s := m.read()
		return s.Holder.PID == p.cmd.Process.Pid && len(s.Ports) == 1 && s.Ports[0].Port == "out0"
	})
	m.until(p, "in0, which is not configured, has no programs", func() bool { return !m.programmed("in0") })
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("ended with %d:\n%s", code, p.log)
	}
}

// programmed reports whether a device has programs at its egress.
func (m *machine) programmed(name string) bool {
	m.t.Helper()
	return slices.ContainsFunc(m.chains(), func(line string) bool { return strings.HasPrefix(line, name+" program") })
}

// A port that is given by name and cannot be managed is refused at once, with the reason.
func TestSwitch_Refuses(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	m.Switch.Must(t, func() error { // a queue that can be read, on a port whose rate cannot
		in0, err := netlink.LinkByName("in0")
		if err != nil {
			return err
		}
		return netlink.QdiscReplace(&netlink.GenericQdisc{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: in0.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(2, 0)}, QdiscType: "bfifo",
		})
	})
	chains := m.chains()
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"br0"}, `"noqueue" keeps no backlog`},
		{[]string{"out0", "lo"}, "keeps no backlog"},
		{[]string{"in0"}, "--rate"},
	} {
		p := m.start("weir", append([]string{"switch"}, c.args...)...)
		if code := p.wait(); code != exitError || !strings.Contains(p.log.String(), c.says) {
			t.Errorf("weir switch %v ends with %d, without %q:\n%s", c.args, code, c.says, p.log)
		}
	}
	if now := m.chains(); !slices.Equal(now, chains) || len(m.pins()) != 0 {
		t.Errorf("refusing left something:\n%s\n%v", difference(chains, now), m.pins())
	}
	p := m.switchUp("weir", "--rate", "1Gbit", "--buffer", "1MB")
	if got := portOf(m.read(), "in0").TargetBytes; got != 200_000 {
		t.Errorf("target %d", got)
	}
	p.signal(syscall.SIGTERM)
	p.wait()
}
