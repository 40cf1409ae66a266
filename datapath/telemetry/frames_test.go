package telemetry_test

import (
	"bytes"
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/frames"
	"weir/datapath/internal/telemetrytest"
	"weir/internal/testroot"
	"weir/internal/testseed"
)

// program is the telemetry program with a backlog that the test sets. Its word stays in the half 0.
type program struct {
	telemetrytest.TelemetryObjects
	last telemetrytest.TelemetryHalf
}

func newProgram(tb testing.TB) *program {
	tb.Helper()
	testroot.Need(tb, "loads kernel programs")
	p := &program{}
	spec, err := telemetrytest.LoadTelemetry()
	if err != nil {
		tb.Fatal(err)
	}
	if err := spec.Variables["idle_ns"].Set(uint64(time.Hour)); err != nil { // no flow becomes idle because the machine is slow
		tb.Fatal(err)
	}
	if err := spec.LoadAndAssign(&p.TelemetryObjects, nil); err != nil {
		tb.Fatalf("%+v", err)
	}
	tb.Cleanup(func() { _ = p.Close() })
	return p
}

// skContext is __sk_buff of BPF_PROG_TEST_RUN.
type skContext [45]uint32

// context returns the context of a packet with so many bytes on the wire, in so many segments.
func context(wireBytes, segments int) *skContext {
	const wireLen, gsoSegs, gsoSize = 40, 41, 44
	c := &skContext{wireLen: uint32(wireBytes), gsoSegs: uint32(segments)}
	if segments > 1 {
		c[gsoSize] = 1448
	}
	c.note(loopback, here())
	return c
}

// loopback is the ifindex of the device that test runs use, and here is the cookie of this namespace.
const loopback = 1

var here = sync.OnceValue(func() uint64 {
	cookie, err := attach.NetnsCookie()
	if err != nil {
		panic(err)
	}
	return cookie
})

// note writes the note of bpf/lib/marked.h: a law at this port has marked the packet.
func (c *skContext) note(ifindex uint32, netns uint64) {
	const cb, note = 12, 0x57656972
	c[cb+2], c[cb+3] = ifindex^note, uint32(netns)^uint32(netns>>32)
}

// run sends a frame through the program.
func (p *program) run(in []byte) (verdict uint32, out []byte, err error) {
	o := ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+64), Flags: bpftest.ChecksumComplete, Context: context(len(in), 0)}
	verdict, err = p.WeirTelemetry.Run(&o)
	return verdict, o.DataOut, err
}

// counted returns the changes of the half since the last call. It does not clear the half, so pairs and VMs stay.
func (p *program) counted(tb testing.TB) (d telemetrytest.TelemetryHalf) {
	tb.Helper()
	var now telemetrytest.TelemetryPortCounts
	if err := p.Ports.Lookup(uint32(0), &now); err != nil {
		tb.Fatal(err)
	}
	if now.Word != now.Half[0].Done {
		tb.Fatalf("%d packets entered, %d are done", now.Word, now.Half[0].Done)
	}
	d = bpftest.Minus(now.Half[0], p.last)
	p.last = now.Half[0]
	d.PeakBytes, d.Vms, d.Pairs, d.PairsRest, d.ByVm = now.Half[0].PeakBytes, now.Half[0].Vms, now.Half[0].Pairs, now.Half[0].PairsRest, now.Half[0].ByVm
	return d
}

// segmentOf returns a frame of a connection between two addresses.
func segmentOf(from, to string, tos, flags byte, seq, ack uint32, payload int) []byte {
	s := frames.Segment{}
	s.From, s.To = netip.MustParseAddr(from), netip.MustParseAddr(to)
	s.FromPort, s.ToPort, s.TOS, s.Flags, s.Seq, s.Ack, s.Payload = 40000, 80, tos, flags, seq, ack, make([]byte, payload)
	if s.From.Compare(s.To) > 0 { // the server
		s.FromPort, s.ToPort = 80, 40000
	}
	return s.Append(nil)
}

// Every path of the program, packet by packet: what is counted, and that nothing changes.
func TestTelemetry_Frames(t *testing.T) {
	const c4, s4, c6, s6 = "10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"
	p := newProgram(t)
	if err := p.Sources.Put(keyOf(c4), uint32(5)); err != nil {
		t.Fatal(err)
	}
	if err := p.Sources.Put(keyOf(s6), uint32(5+64)); err != nil { // the same first place in the table of VMs
		t.Fatal(err)
	}
	arp := append([]byte{0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0x08, 0x06}, make([]byte, 46)...)
	type half = telemetrytest.TelemetryHalf
	rows := []struct {
		name string
		in   []byte
		want half
	}{
		{"SYN", segmentOf(c4, s4, 0, frames.SYN, 99, 0, 0), half{Syn: 1}},
		{"SYN again", segmentOf(c4, s4, 0, frames.SYN, 99, 0, 0), half{}},
		{"SYN-ACK", segmentOf(s4, c4, 0, frames.SYN|frames.ACK, 499, 100, 0), half{SynAck: 1}},
		{"ACK", segmentOf(c4, s4, 0, frames.ACK, 100, 500, 0), half{}},
		{"request with CE of a known VM", segmentOf(c4, s4, 3, frames.ACK, 100, 500, 10), half{Request: 1, Ce: 1}},
		{"answer with CE of an unknown source", segmentOf(s4, c4, 3, frames.ACK, 500, 110, 1000), half{Ce: 1, CeUnknown: 1}},
		{"ACK with CE", segmentOf(c4, s4, 3, frames.ACK, 110, 1500, 0), half{Ce: 1}},
		{"sent again", segmentOf(s4, c4, 2, frames.ACK, 500, 110, 1000), half{}},
		{"FIN", segmentOf(c4, s4, 1, frames.ACK|frames.FIN, 110, 1500, 0), half{Fin: 1}},
		{"RST", segmentOf(s4, c4, 0, frames.RST, 1500, 0, 0), half{Rst: 1}},
		{"RST again", segmentOf(s4, c4, 0, frames.RST, 1500, 0, 0), half{}},
		{"IPv6, in mid-stream", segmentOf(c6, s6, 0, frames.ACK, 7, 7, 10), half{Found: 1, Request: 1}},
		{"IPv6, CE of a known VM", segmentOf(s6, c6, 3, frames.ACK, 7, 17, 10), half{Found: 1, Ce: 1}},
		{"SYN from no address", segmentOf("0.0.0.0", s4, 0, frames.SYN, 99, 0, 0), half{}},
		{"SYN to no address", segmentOf(c6, "::", 0, frames.SYN, 99, 0, 0), half{}},
		{"not IP", arp, half{}},
	}
	for i, r := range rows {
		if err := p.BacklogBytes.Set(uint32(1000 - 10*i)); err != nil {
			t.Fatal(err)
		}
		verdict, out, err := p.run(r.in)
		if err != nil || verdict != bpftest.TCXNext || !bytes.Equal(out, r.in) {
			t.Fatalf("%s: returned %d, %v, changed: %t", r.name, int32(verdict), err, !bytes.Equal(out, r.in))
		}
		got := p.counted(t)
		if got.PeakBytes != 1000 {
			t.Errorf("%s: peak %d", r.name, got.PeakBytes)
		}
		if i == len(rows)-1 {
			// c4 -> s4, s4 -> c4, c6 -> s6, s6 -> c6; CE of VM 5 twice, of VM 69 once.
			if got.Pairs != 4 || got.PairsRest != 0 || got.Vms != 2 || got.ByVm[5].Packets != 2 || got.ByVm[6].Vm != 69 || got.ByVm[6].Packets != 1 {
				t.Errorf("%d pairs, %d VMs: %v", got.Pairs, got.Vms, got.ByVm[5:7])
			}
		}
		r.want.Done, r.want.Packets, r.want.Bytes = 1, 1, uint64(len(r.in))
		got.PeakBytes, got.Vms, got.Pairs, got.PairsRest, got.ByVm, got.Pair = 0, 0, 0, 0, r.want.ByVm, r.want.Pair
		if got != r.want {
			t.Errorf("%s: counted %+v, want %+v", r.name, got, r.want)
		}
	}
}

// A packet with CE counts as marked only if a law at this port has marked it: not without a note, nor with one of another port or
// namespace, nor if its field is another.
func TestTelemetry_MarkedHereOnly(t *testing.T) {
	p := newProgram(t)
	for _, r := range []struct {
		what    string
		ecn     byte
		ifindex uint32
		netns   uint64
		want    uint64
	}{
		{"marked here", 3, loopback, here(), 1},
		{"another port", 3, loopback + 1, here(), 0},
		{"another namespace", 3, loopback, here() + 1, 0},
		{"a note without a mark", 2, loopback, here(), 0},
	} {
		in := segmentOf("10.0.0.1", "10.0.0.2", r.ecn, frames.ACK, 1, 1, 100)
		c := context(len(in), 0)
		c.note(r.ifindex, r.netns)
		if _, err := p.WeirTelemetry.Run(&ebpf.RunOptions{Data: in, DataOut: make([]byte, 4096), Context: c}); err != nil {
			t.Fatal(err)
		}
		if got := p.counted(t); got.Ce != r.want || got.CeUnknown != r.want || got.Packets != 1 {
			t.Errorf("%s: %d marks, %d of unknown sources, %d packets", r.what, got.Ce, got.CeUnknown, got.Packets)
		}
	}
	in := segmentOf("10.0.0.1", "10.0.0.2", 3, frames.ACK, 1, 1, 100)
	none := &skContext{40: uint32(len(in))}
	if _, err := p.WeirTelemetry.Run(&ebpf.RunOptions{Data: in, DataOut: make([]byte, 4096), Context: none}); err != nil {
		t.Fatal(err)
	}
	if got := p.counted(t); got.Ce != 0 || got.Packets != 1 {
		t.Errorf("without a note: %d marks", got.Ce)
	}
}

// A GSO packet counts as its segments, and its bytes are those on the wire: once in every count of packets, and as one arrival.
func TestTelemetry_Segments(t *testing.T) {
	p := newProgram(t)
	in := segmentOf("10.0.0.1", "10.0.0.2", 3, frames.ACK, 1, 1, 3000)
	if _, err := p.WeirTelemetry.Run(&ebpf.RunOptions{Data: in, DataOut: make([]byte, 4096), Context: context(3200, 3)}); err != nil {
		t.Fatal(err)
	}
	if got := p.counted(t); got.Done != 1 || got.Packets != 3 || got.Bytes != 3200 || got.Ce != 3 || got.CeUnknown != 3 || got.Found != 1 {
		t.Errorf("done %d, %d packets, %d bytes, %d CE, %d unknown, %d found", got.Done, got.Packets, got.Bytes, got.Ce, got.CeUnknown, got.Found)
	}
}

// More VMs and pairs than there are places: the further ones are counted together, and none is lost.
func TestTelemetry_Limits(t *testing.T) {
	p := newProgram(t)
	const vms = 100
	for i := range uint32(vms) {
		a := netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})
		if err := p.Sources.Put(keyOf(a.String()), i*7+1); err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.run(segmentOf(a.String(), "10.2.0.1", 3, frames.SYN, 1, 0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	got := p.counted(t)
	sum := uint32(0)
	for _, m := range got.ByVm {
		sum += m.Packets
	}
	if got.Ce != vms || got.Vms != 64 || sum != 64 || got.CeRest != vms-64 || got.CeUnknown != 0 {
		t.Errorf("%d CE, %d VMs with %d, %d more, %d unknown", got.Ce, got.Vms, sum, got.CeRest, got.CeUnknown)
	}
	if got.Syn != vms || got.Pairs+got.PairsRest != vms || got.Pairs > 64 || got.Pairs < 50 {
		t.Errorf("%d SYN, %d pairs, %d more", got.Syn, got.Pairs, got.PairsRest)
	}
}

// A source that floods takes 8 of the 64 places, and leaves the others to other sources. All of its arrivals are in its own pairs.
func TestTelemetry_FloodOfOneSource(t *testing.T) {
	const flood, others = 5000, 24
	p := newProgram(t)
	syn := func(from netip.Addr, n uint16) {
		s := frames.Segment{}
		s.From, s.To, s.Flags = from, netip.AddrFrom4([4]byte{11, 0, byte(n >> 8), byte(n)}), frames.SYN
		s.FromPort, s.ToPort = 1000+n, 80
		if _, _, err := p.run(s.Append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	bad := netip.MustParseAddr("10.1.0.200")
	for n := range uint16(flood) {
		syn(bad, n)
	}
	for n := range byte(others) {
		syn(netip.AddrFrom4([4]byte{10, 1, 0, n}), uint16(n))
	}
	var now telemetrytest.TelemetryPortCounts
	if err := p.Ports.Lookup(uint32(0), &now); err != nil {
		t.Fatal(err)
	}
	h, its, opened, listed := now.Half[0], 0, uint32(0), 0
	for _, pair := range h.Pair {
		switch {
		case pair.Source == keyOf(bad.String()).Word:
			its++
			opened += pair.Opened
		case pair.Hash != 0:
			listed++
		}
	}
	if its != 8 || opened != flood || listed+int(h.PairsRest) != others || listed < others-4 || h.Syn != flood+others {
		t.Errorf("the flood has %d pairs with %d SYNs, others have %d pairs of %d, %d more", its, opened, listed, others, h.PairsRest)
	}
}

func keyOf(address string) (key telemetrytest.TelemetryAddress) {
	b := netip.MustParseAddr(address).As16()
	for i := range key.Word {
		key.Word[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return key
}

var mutated = flag.Int("frames", 100_000, "mutated frames in TestTelemetry_Mutated")

// Mutated frames of many connections: the program always returns NEXT, changes nothing, and counts each once.
func TestTelemetry_Mutated(t *testing.T) {
	p := newProgram(t)
	r := rand.New(rand.NewPCG(testseed.Seed(t), 19))
	traffic := frames.NewTraffic(r, 200)
	ran, sent := uint64(0), uint64(0)
	out := make([]byte, 8192)
	var in []byte
	for range *mutated {
		in = frames.Mutate(r, append(in[:0], traffic.Next().Data...))
		o := ebpf.RunOptions{Data: in, DataOut: out, Flags: bpftest.ChecksumComplete, Context: context(len(in), 0)}
		verdict, err := p.WeirTelemetry.Run(&o)
		if bpftest.Refused(err) {
			continue
		}
		if err != nil || verdict != bpftest.TCXNext || !bytes.Equal(o.DataOut, in) {
			t.Fatalf("returned %d, %v: %x became %x", int32(verdict), err, in, o.DataOut)
		}
		ran++
		sent += uint64(len(in))
	}
	got := p.counted(t)
	if got.Packets != ran || got.Bytes != sent || got.Done != ran || ran < uint64(*mutated)/2 {
		t.Errorf("%d packets and %d bytes of %d and %d", got.Packets, got.Bytes, ran, sent)
	}
	if got.Syn == 0 || got.SynAck == 0 || got.Fin == 0 || got.Rst == 0 || got.Request == 0 || got.Found == 0 || got.Ce == 0 {
		t.Errorf("some path was never taken: %+v", got)
	}
	bpftest.CheckVerified(t, "weir_telemetry", p.WeirTelemetry)
	t.Logf("%d frames; %d SYN, %d requests, %d found, %d CE", ran, got.Syn, got.Request, got.Found, got.Ce)
}
