package main

import (
	"encoding/binary"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"weir/agent/doctor"
	"weir/agent/switchd"
	"weir/datapath/fairq"
	"weir/datapath/park"
	"weir/datapath/testnet"
)

const parkDevice = "weir-park0"

// parking returns the ifindex of the switch's parking device, 0 if there is none.
func (m *machine) parking() (ifindex int) {
	m.t.Helper()
	m.Switch.Must(m.t, func() error {
		l, err := netlink.LinkByName(parkDevice)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}
		if err == nil {
			ifindex = l.Attrs().Index
		}
		return err
	})
	return ifindex
}

func (m *machine) deleteParking() {
	m.t.Helper()
	m.Switch.Must(m.t, func() error {
		l, err := netlink.LinkByName(parkDevice)
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
}

// parked returns the state of the parking; zero: it cannot be read.
func (m *machine) parked() fairq.Parking {
	m.t.Helper()
	if s := m.read(); s != nil && s.Parking != nil {
		return *s.Parking
	}
	return fairq.Parking{}
}

// look reads the counters and the queue of the parking alone. A whole status takes too long, with hundreds of flows, to time
// packets that leave.
func (m *machine) look() (s park.Stats) {
	m.t.Helper()
	m.Switch.Must(m.t, func() (err error) {
		s, _, err = park.Look(nil, park.Options{Owner: "weir switch default"})
		return err
	})
	return s
}

const paced = "kind: Switch\nversion: 2\nmetrics: {listen: \"\"}\nports: [{match: [out0, in0]}]\nfairq: {credits: on}\n"

// The switch makes the parking. A start after a kill and another version take it over. The end of the switch, a purge, a
// start without credits, and a reload that switches them off remove it.
func TestSwitchCredits_LifeCycle(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	chains := m.chains()
	p := m.switchUp(older, "--credits", "on")
	first := m.parking()
	if s, code := m.status(); first == 0 || code != 0 || s.Parking == nil || !s.Parking.Present || portNamed(&s, "out0").Credits == nil || !portNamed(&s, "out0").Credits.Paces {
		t.Fatalf("status: %d, %+v; device %d", code, s, first)
	}
	next := m.switchUp(newer, "--credits", "on", "--take-over")
	if code := p.wait(); code != 0 || m.parking() != first {
		t.Errorf("taken over: %d, device %d became %d", code, first, m.parking())
	}
	next.kill()
	p = m.switchUp("weir", "--credits", "on")
	if m.parking() != first {
		t.Errorf("started again after a kill: device %d became %d", first, m.parking())
	}
	p.signal(syscall.SIGTERM)
	if p.wait(); m.parking() != 0 {
		t.Error("the parking is left at the end")
	}

	c := m.switchFrom(paced)
	c.applied(strings.Replace(paced, "credits: on", "promises: on", 1))
	if s, _ := m.status(); m.parking() != 0 || s.Parking != nil || portNamed(&s, "out0").Credits == nil || portNamed(&s, "out0").Credits.Paces {
		t.Errorf("reloaded with promises alone: %+v, device %d", s, m.parking())
	}
	c.applied(strings.Replace(paced, "credits: on", "credits: off", 1))
	if s, _ := m.status(); portNamed(&s, "out0").Credits != nil {
		t.Errorf("reloaded without credits: %+v", s)
	}
	c.applied(paced)
	if s, code := m.status(); code != 0 || s.Parking == nil || !s.Parking.Present {
		t.Errorf("reloaded with credits: %+v", s)
	}
	c.p.kill()
	testnet.Until(t, "its lease is over", func() bool { return !m.read().Alive() })
	if report, _ := m.doctor(); says(&report, "weir.parking", parkDevice, "the parking of switch default, which is not running") != doctor.Note {
		t.Errorf("weir doctor does not know the parking: %+v", report.Findings)
	}
	p = m.switchUp("weir")
	if m.parking() != 0 {
		t.Error("a start without credits left the parking of the process before")
	}
	p.kill()
	p = m.switchUp("weir", "--credits", "on")
	p.kill()
	objects := m.objects()
	if code := m.start("weir", "switch", "--purge").wait(); code != 0 || m.parking() != 0 {
		t.Errorf("purge ends with %d, device %d", code, m.parking())
	}
	m.goneWithoutTrace(objects, chains)
}

// One segment of each of pacedFlows exceeds what the port has room for, 28 KB, and not its buffer. With manyFlows, more than
// 500 acknowledgements wait, for less than 100 ms.
const (
	pacedFlows    = 60
	manyFlows     = 620
	machineTarget = machineBuffer / 5
)

// kill -9 with 500 packets in the parking: no connection is lost, and what waited leaves by itself. The next start takes
// the parking over, and packets wait there again.
func TestSwitchCredits_Killed(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	bps, buffer, flows, waiting := uint64(150e6), uint32(80*machineTarget), manyFlows, uint32(500)
	if !*soak { // for a slow machine: a port keeps packets for 50 ms, so the number of packets falls with the rate
		bps, buffer, flows = machineBps/4, buffer/4, flows/4
		waiting = uint32(500 * bps / 150e6)
	}
	// The buffer is so large that few flows wait for their timers while they begin.
	testnet.Shape(t, m.Port, bps, buffer, 2*1514)
	credits := []string{"--credits", "on", "--target-fraction", "0.0125"}
	p := m.switchUp("weir", credits...)
	m.patient(p)
	streams := m.NewStreams(t, testnet.ReceiverIPv4, flows)
	var longest time.Duration
	for n := range rounds(2, 20) {
		var at, left park.Stats
		m.until(p, "packets wait", func() bool { at = m.look(); return at.BacklogPackets >= waiting })
		streams.Mark()
		killed := time.Now()
		p.signal(syscall.SIGKILL)
		testnet.Until(t, "the packets that waited have left", func() bool {
			left = m.look()
			return left.Queue && left.Returned+left.Stale >= at.Parked
		})
		took := time.Since(killed)
		p.wait()
		longest = max(longest, took)
		if left.Stale != 0 || left.Foreign != 0 {
			t.Errorf("round %d: %+v", n, left)
		}
		t.Logf("round %d: %d packets waited, %d KB with padding, and left within %v; longest stall of a stream %v", n, at.BacklogPackets,
			at.BacklogBytes/1000, took.Round(time.Millisecond), streams.LongestGap().Round(time.Millisecond))
		p = m.switchUp("weir", credits...)
		m.patient(p)
		streams.Progress(t, 1)
	}
	limit(t, "parked packets left after kill -9", longest, 100*time.Millisecond)
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 || m.parking() != 0 {
		t.Errorf("ended with %d, device %d", code, m.parking())
	}
}

// Faults of the parking under load: packets pass, no connection is lost, status names what it can see, and the switch
// repairs it.
func TestSwitchCredits_Faults(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	p := m.switchUp("weir", "--credits", "on")
	streams := m.NewStreams(t, testnet.ReceiverIPv4, pacedFlows)
	waits := func() {
		t.Helper()
		before := m.parked()
		m.until(p, "packets wait in the parking", func() bool { s := m.parked(); return s.Present && s.Returned > before.Returned })
		streams.Progress(t, 1)
	}
	waits()

	first := m.parking()
	m.deleteParking()
	m.until(p, "the parking is made again", func() bool { now := m.parking(); return now != 0 && now != first })
	waits()

	// Without the process nobody makes it again.
	p.kill()
	m.deleteParking()
	m.said("without a parking", func(s *switchd.Switch, _ int) bool { return found(portNamed(s, "out0"), "no-parking", "missing") })
	streams.Progress(t, 1)
	p = m.switchUp("weir", "--credits", "on")
	waits()

	m.limitParking(t, 1)
	m.said("with a full parking", func(s *switchd.Switch, _ int) bool { return found(portNamed(s, "out0"), "full-parking", "full") })
	before := m.parked()
	streams.Progress(t, 1)
	m.until(p, "packets pass it", func() bool { return m.parked().PassedFull > before.PassedFull })

	// Deleted while it is full: packets pass, and it is made again with the limit of the switch.
	first = m.parking()
	m.deleteParking()
	streams.Progress(t, 1)
	m.until(p, "the full parking is made again", func() bool { now := m.parking(); return now != 0 && now != first })
	waits()
	m.said("with a parking that is not full", func(s *switchd.Switch, _ int) bool { return !found(portNamed(s, "out0"), "full-parking", "full") })

	if said := m.parked(); said.Stale != 0 {
		t.Errorf("packets were dropped: %+v", said)
	}
}

// limitParking sets how many packets may wait, in the kernel.
func (m *machine) limitParking(t *testing.T, packets uint32) {
	t.Helper()
	const limitAt = 28 // of limit_packets in bpf/lib/park.h's struct park_state
	done := map[ebpf.MapID]bool{}
	for _, id := range m.objects().maps {
		state, err := ebpf.NewMapFromID(id)
		if err != nil {
			continue // freed meanwhile
		}
		info, err := state.Info()
		if err == nil && info.Name == "parking" {
			var value []byte
			if value, err = state.LookupBytes(uint32(0)); err == nil && binary.NativeEndian.Uint32(value[limitAt:]) > 0 {
				binary.NativeEndian.PutUint32(value[limitAt:], packets)
				err, done[id] = state.Put(uint32(0), value), true
			}
		}
		if err = errors.Join(err, state.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if len(done) != 1 {
		t.Fatalf("%d parkings", len(done))
	}
}

// The port is deleted and made again while packets wait: nothing is lost but what the device had, and packets wait again.
func TestSwitchCredits_PortMadeAgain(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	m.bridgeReceiver()
	m.deletePort()
	m.makePort()
	p := m.switchUp("weir", "--credits", "on")
	streams := m.NewStreams(t, testnet.ReceiverIPv4, pacedFlows)
	m.until(p, "packets wait", func() bool { return m.parked().Returned > 0 })
	for range rounds(2, 10) {
		before := m.parked()
		m.deletePort()
		m.until(p, "the switch has seen that it is gone", func() bool { return !portOf(m.read(), "out0").HasDevice })
		ifindex := m.makePort()
		m.until(p, "the port is attached again", func() bool {
			s := portOf(m.read(), "out0")
			return s.HasDevice && s.Ifindex == ifindex
		})
		streams.Progress(t, 100_000)
		m.until(p, "packets wait again", func() bool { return m.parked().Returned > before.Returned })
	}
}
