package repair_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
	"weir/datapath/internal/frames"
	"weir/datapath/internal/repairtest"
	"weir/datapath/park"
	"weir/datapath/testnet"
)

const (
	tcxNext     = 0xffffffff
	tcxDrop     = 2
	tcxRedirect = 7

	limit = 10_000
	kept  = 3_000

	portID = 5
)

// bench is the repair program with a backlog and a time that the test sets, and a parking whose packets do not come back.
type bench struct {
	objects repairtest.RepairObjects
	back    uint32 // the device by which packets come back
	packets uint64 // that it got
}

func newBench(t *testing.T) *bench {
	t.Helper()
	p := testnet.NewPath(t, testnet.PathOptions{NoIPv6: true})
	opened, err := park.Open(p.Switch.Enter, park.Options{Owner: "tests"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	if err := opened.SetPort(portID, p.Port.Ifindex, 1e9, park.Bursts{}); err != nil {
		t.Fatal(err)
	}
	spec, err := repairtest.LoadRepair()
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.Variables[repairtest.RepairVarPortId].Set(uint32(portID)); err != nil {
		t.Fatal(err)
	}
	b := &bench{}
	if err := spec.LoadAndAssign(&b.objects, &ebpf.CollectionOptions{Cache: attach.KernelTypes(), MapReplacements: opened.Maps()}); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { _ = b.objects.Close() })
	var state struct {
		Device, Cookie               uint64
		In, Out, LimitBytes, Packets uint32
	}
	if err := opened.Maps()["parking"].Lookup(uint32(0), &state); err != nil {
		t.Fatal(err)
	}
	b.back = state.Out
	b.at(t, time.Hour)
	b.configure(t, repairtest.RepairRepairPortConfig{LimitBytes: limit, ParkBytes: kept})
	return b
}

// configure writes the port's configuration.
func (b *bench) configure(t *testing.T, c repairtest.RepairRepairPortConfig) {
	t.Helper()
	if err := b.objects.RepairConfigs.Put(uint32(portID), &c); err != nil {
		t.Fatal(err)
	}
}

// control writes a heartbeat at a time, with a lease of 1 s.
func (b *bench) control(t *testing.T, heartbeat time.Duration, releasing uint32) {
	t.Helper()
	c := repairtest.RepairRepairControl{HeartbeatNs: uint64(heartbeat), LeaseNs: uint64(time.Second), Releasing: releasing}
	if err := b.objects.RepairControls.Put(uint32(0), &c); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) at(t *testing.T, now time.Duration) {
	t.Helper()
	if err := b.objects.NowNs.Set(uint64(now)); err != nil {
		t.Fatal(err)
	}
	b.control(t, now, 0)
}

// run sends a frame that finds this backlog through the program. from: the device that it came by.
func (b *bench) run(t *testing.T, frame []byte, backlog, from uint32) (verdict uint32) {
	t.Helper()
	if err := b.objects.BacklogBytes.Set(backlog); err != nil {
		t.Fatal(err)
	}
	context := make([]byte, 192)
	binary.NativeEndian.PutUint32(context[36:], from) // ingress_ifindex
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)), Context: context}
	verdict, err := b.objects.WeirRepair.Run(&o)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(o.DataOut, frame) {
		t.Error("the frame has changed")
	}
	b.packets++
	return verdict
}

// segment is a TCP segment of 1000 bytes between these ports of two hosts.
func segment(from, to string, fromPort, toPort uint16) []byte {
	s := frames.Segment{FromPort: fromPort, ToPort: toPort, Flags: frames.ACK}
	s.From, s.To = netip.MustParseAddr(from), netip.MustParseAddr(to)
	s.Payload = make([]byte, 1000-len(s.Bytes()))
	return s.Bytes()
}

// One packet after another, each with the verdict that it must get: the limit, order in a flow, the full parking, what is not TCP.
func TestFrames(t *testing.T) {
	b := newBench(t)
	const a4, b4, a6, b6 = "10.9.0.1", "10.9.0.2", "fd00::9", "fd00::a"
	first, second := segment(a4, b4, 4000, 80), segment(a4, b4, 4001, 80)
	answer := segment(b4, a4, 80, 4000) // of the first, in the other direction
	ipv6 := segment(a6, b6, 4000, 80)
	udp := frames.Packet(frames.Link{}, frames.IP{From: netip.MustParseAddr(a4), To: netip.MustParseAddr(b4)}, frames.UDP, make([]byte, 100))
	fragment := segment(a4, b4, 4000, 80)
	binary.BigEndian.PutUint16(fragment[20:], 0x2000) // more fragments follow
	arp := append(bytes.Clone(udp[:12]), append([]byte{0x08, 0x06}, make([]byte, 46)...)...)
	const room, none, over = limit - 1000, limit, limit - 999
	for i, step := range []struct {
		what    string
		frame   []byte
		backlog uint32
		from    uint32
		want    uint32
	}{
		{"at the limit", first, room, 0, tcxNext},
		{"a byte over it: parked", first, over, 0, tcxRedirect},
		{"behind it, though there is room", first, 0, 0, tcxRedirect},
		{"another flow", second, room, 0, tcxNext},
		{"the other direction", answer, room, 0, tcxNext},
		{"IPv6 over the limit", ipv6, none, 0, tcxRedirect},
		{"the parking is full", second, over, 0, tcxDrop},
		{"full for a flow that waits, too", first, 0, 0, tcxDrop},
		{"IPv6 behind", ipv6, 0, 0, tcxDrop},
		{"the first comes back", first, none, b.back, tcxNext},
		{"one of the flow still waits", first, 0, 0, tcxRedirect},
		{"comes back", first, none, b.back, tcxNext},
		{"comes back", first, none, b.back, tcxNext},
		{"none of the flow waits", first, room, 0, tcxNext},
		{"IPv6 waits", ipv6, 0, 0, tcxRedirect},
		{"UDP", udp, 0, 0, tcxNext},
		{"UDP over the limit", udp, none, 0, tcxDrop},
		{"a fragment", fragment, 0, 0, tcxNext},
		{"a fragment over the limit", fragment, none, 0, tcxDrop},
		{"not IP", arp, 0, 0, tcxNext},
		{"not IP, over the limit", arp, none, 0, tcxDrop},
		{"cut", first[:40], 0, 0, tcxNext},
	} {
		if got := b.run(t, step.frame, step.backlog, step.from); got != step.want {
			t.Errorf("packet %d, %s: verdict %d, want %d", i, step.what, int32(got), int32(step.want))
		}
	}
	var cpus []repairtest.RepairRepairCounts
	if err := b.objects.RepairStats.Lookup(uint32(portID), &cpus); err != nil {
		t.Fatal(err)
	}
	var c repairtest.RepairRepairCounts
	for _, one := range cpus {
		c.Seen, c.Over, c.Behind, c.Full = c.Seen+one.Seen, c.Over+one.Over, c.Behind+one.Behind, c.Full+one.Full
		c.Other, c.Refused, c.Back = c.Other+one.Other, c.Refused+one.Refused, c.Back+one.Back
	}
	if c.Seen+c.Back != b.packets || c.Over != 2 || c.Behind != 3 || c.Full != 3 || c.Other != 3 || c.Refused != 0 || c.Back != 3 {
		t.Errorf("%+v of %d packets", c, b.packets)
	}
	var port repairtest.RepairRepairPort
	if err := b.objects.RepairPorts.Lookup(uint32(portID), &port); err != nil || port.Bytes != 2000 {
		t.Errorf("%+v, %v: want 2000 bytes that wait", port, err)
	}
	// Two packets never come back: the parking's device was deleted. Their flow and their bytes are forgotten.
	b.at(t, time.Hour+199*time.Millisecond)
	if got := b.run(t, ipv6, 0, 0); got != tcxRedirect {
		t.Errorf("after 199 ms: verdict %d", int32(got))
	}
	b.at(t, time.Hour+400*time.Millisecond)
	if got := b.run(t, ipv6, 0, 0); got != tcxNext {
		t.Errorf("after another 201 ms: verdict %d", int32(got))
	}
	if err := b.objects.RepairPorts.Lookup(uint32(portID), &port); err != nil || port.Bytes != 0 {
		t.Errorf("%+v, %v: want no bytes that wait", port, err)
	}
	// Without heartbeats, while user space leaves, and at a port that is switched off, packets pass.
	for what, step := range map[string]func(){
		"no heartbeat": func() { b.control(t, time.Hour-time.Second, 0) },
		"leaving":      func() { b.control(t, time.Hour+400*time.Millisecond, 1) },
		"off":          func() { b.configure(t, repairtest.RepairRepairPortConfig{LimitBytes: limit, ParkBytes: kept, Off: 1}) },
	} {
		step()
		if got := b.run(t, first, limit, 0); got != tcxNext {
			t.Errorf("%s: verdict %d", what, int32(got))
		}
		if got := b.run(t, udp, limit, 0); got != tcxNext {
			t.Errorf("%s, UDP: verdict %d", what, int32(got))
		}
		b.control(t, time.Hour+400*time.Millisecond, 0)
		b.configure(t, repairtest.RepairRepairPortConfig{LimitBytes: limit, ParkBytes: kept})
	}
	if got := b.run(t, first, limit, 0); got != tcxRedirect {
		t.Errorf("on again: verdict %d", int32(got))
	}
	// Without a parking nothing is kept: packets go to the queue, as without Weir.
	if err := b.objects.Parking.Put(uint32(0), make([]byte, 32)); err != nil {
		t.Fatal(err)
	}
	if got := b.run(t, first, limit, 0); got != tcxNext {
		t.Errorf("verdict %d", int32(got))
	}
}

// A packet that came before another processor parked one, by the clock of its own, does not take what waits for lost.
func TestFrames_ParkedMeanwhile(t *testing.T) {
	b := newBench(t)
	frame := segment("10.0.0.1", "10.0.0.2", 1000, 2000)
	b.at(t, time.Hour+time.Microsecond)
	for range kept / 1000 {
		if v := b.run(t, frame, limit, 0); v != tcxRedirect {
			t.Fatalf("verdict %d: want it parked", int32(v))
		}
	}
	b.at(t, time.Hour)
	if v := b.run(t, frame, limit, 0); v != tcxDrop {
		t.Errorf("verdict %d: want it dropped, since as many bytes wait as may", int32(v))
	}
}
