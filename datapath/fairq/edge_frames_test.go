package fairq_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/fairq"
	"weir/datapath/fairq/edge"
	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/frames"
	"weir/datapath/testnet"
)

const flagged = 8 // in the reserved bits: a switch advertises this window

// edgeBench is the edge at a guest's port and at a host's own device, and their programs. The guest is the
// client of a talk.
type edgeBench struct {
	*edge.Edge
	apply, guard [2]*ebpf.Program // by side
	last         [2]edge.Stats
}

// newEdgeBench attaches the edge to devices that are down: only the packets of the test pass.
func newEdgeBench(t *testing.T, c edge.Config) *edgeBench {
	t.Helper()
	ports := downPorts(t, "guest", "host")
	b := &edgeBench{Edge: attachEdge(t, c, edge.Port{PortRef: ports[0]}, edge.Port{PortRef: ports[1], Side: edge.Host})}
	b.apply = [2]*ebpf.Program{programAt(t, ports[0], ebpf.AttachTCXEgress), programAt(t, ports[1], ebpf.AttachTCXIngress)}
	b.guard = [2]*ebpf.Program{programAt(t, ports[0], ebpf.AttachTCXIngress), programAt(t, ports[1], ebpf.AttachTCXEgress)}
	return b
}

// attachEdge attaches the edge for the length of the test.
func attachEdge(t *testing.T, c edge.Config, ports ...edge.Port) *edge.Edge {
	t.Helper()
	e, err := edge.Attach(ports, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// counted returns the increase of a port's counters since the last call.
func (b *edgeBench) counted(t *testing.T, side int) edge.Stats {
	t.Helper()
	all, err := b.Stats()
	if err != nil {
		t.Fatal(err)
	}
	now, last := all[side], b.last[side]
	b.last[side] = now
	return bpftest.Minus(now, last)
}

// shakeHands sends a handshake that the guest opens through the edge at a port.
func (b *edgeBench) shakeHands(t *testing.T, k *talk, side int) {
	t.Helper()
	for i, p := range []*ebpf.Program{b.guard[side], b.apply[side]} {
		in := k.syn(i == 1)
		if out := throughProgram(t, p, in, 0); !bytes.Equal(in, out) {
			t.Errorf("%s: a SYN was changed:\n in  %x\n out %x", k.name, in, out)
		}
	}
}

// withOptions builds an ACK of the server with this window, these bits and these options.
func (k *talk) withOptions(window uint16, bits byte, list []byte) []byte {
	at := *k
	at.window = int(window)
	return at.segment(true, frames.ACK, bits, list, 5)
}

func (k *talk) towards(window uint16, bits byte, payload int) []byte {
	at := *k
	if at.window = int(window); window == 0 {
		at.window = -1
	}
	return at.segment(true, frames.ACK, bits, dataOptions, payload)
}

// expect sends an ACK towards the guest and checks the window that it arrives with, and the counters. The frame
// that comes out is the one that its sender would have built with that window and no flag, to the byte.
func (b *edgeBench) expect(t *testing.T, k *talk, side int, window uint16, bits byte, want uint16, why edge.Stats) {
	t.Helper()
	why.Seen = 1
	for i, r := range []struct {
		payload int
		flags   uint32
	}{{0, 0}, {0, bpftest.ChecksumComplete}, {1, 0}, {700, bpftest.ChecksumComplete}} {
		b.counted(t, side)
		in, out := k.towards(window, bits, r.payload), k.towards(want, bits&^flagged, r.payload)
		if got := throughProgram(t, b.apply[side], in, r.flags); !bytes.Equal(got, out) {
			t.Errorf("%s, side %d, window %d, bits %d:\n in   %x\n out  %x\n want %x", k.name, side, window, bits, in, got, out)
		}
		if got := b.counted(t, side); got != why {
			t.Errorf("%s, side %d, window %d, bits %d: counted %+v, want %+v", k.name, side, window, bits, got, why)
		}
		if i == 0 {
			why.Entered = 0
		}
	}
}

var (
	advertised   = edge.Stats{Advertised: 1}
	entered      = edge.Stats{Advertised: 1, Entered: 1}
	applied      = edge.Stats{Applied: 1}
	smaller      = edge.Stats{Smaller: 1}
	unadvertised = edge.Stats{Unadvertised: 1}
)

// An advertised window limits every later ACK until the next advertisement, and never goes below a segment and
// a byte; the flag is cleared. The rows are every kind of header, both sides, and scales of both ends.
func TestEdge_Table(t *testing.T) {
	b := newEdgeBench(t, edge.Config{Lease: time.Minute})
	port := uint16(0)
	for _, k := range headers() {
		for _, scales := range [][2]int{{0, 0}, {7, 2}, {0, 14}, {-1, 7}, {7, -1}, {200, 200}} {
			for side := range 2 {
				port++
				k := k
				k.port, k.client, k.server = port, scales[0], scales[1]
				b.shakeHands(t, &k, side)
				shift := k.shift(true)
				floor := uint16((1461 + 1<<shift - 1) >> shift)
				b.expect(t, &k, side, 60000, 0, 60000, unadvertised)
				b.expect(t, &k, side, floor+9, flagged, floor+9, entered)
				b.expect(t, &k, side, 60000, 0, floor+9, applied)
				b.expect(t, &k, side, floor+8, 0, floor+8, smaller)
				b.expect(t, &k, side, 0, 0, 0, smaller)
				b.expect(t, &k, side, floor+20, flagged, floor+20, advertised)
				b.expect(t, &k, side, floor+19, 0, floor+19, smaller)
				b.expect(t, &k, side, 65535, 7, floor+20, applied) // other bits stay
				b.expect(t, &k, side, 0, flagged, 0, advertised)   // a receiver that is full advertises nothing
				b.expect(t, &k, side, 60000, 0, floor+20, applied)
				if floor > 1 {
					b.expect(t, &k, side, floor-1, flagged, floor-1, advertised)
					b.expect(t, &k, side, 60000, 0, floor, applied)
				}
			}
		}
	}
	t.Logf("%d connections", port)
}

// The configuration can set the least window.
func TestEdge_Floor(t *testing.T) {
	b := newEdgeBench(t, edge.Config{Lease: time.Minute, FloorBytes: 500})
	k := &talk{name: "floor of 500", port: 1, client: 2, server: 2}
	b.shakeHands(t, k, 0)
	b.expect(t, k, 0, 150, flagged, 150, entered)
	b.expect(t, k, 0, 60000, 0, 150, applied)
	b.expect(t, k, 0, 100, flagged, 100, advertised)
	b.expect(t, k, 0, 60000, 0, 125, applied)
}

// If the handshake was not seen, windows are limited without a scale.
func TestEdge_UnknownHandshake(t *testing.T) {
	b := newEdgeBench(t, edge.Config{Lease: time.Minute})
	k := &talk{name: "older than the edge", port: 1}
	b.expect(t, k, 0, 60000, 0, 60000, unadvertised)
	b.expect(t, k, 0, 3, flagged, 3, entered)
	b.expect(t, k, 0, 60000, 0, 3, applied)
	b.expect(t, k, 0, 2, 0, 2, smaller)
	b = newEdgeBench(t, edge.Config{Lease: time.Minute, Shrink: fairq.ShrinkAvoid})
	b.expect(t, k, 0, 3, flagged, 3, entered)
	b.expect(t, k, 0, 60000, 0, 60000, smaller)
}

// No limit outlasts the lease, which every flagged ACK renews.
func TestEdge_LeaseExpires(t *testing.T) {
	b := newEdgeBench(t, edge.Config{Lease: 50 * time.Millisecond})
	k := &talk{name: "forgotten", port: 1, client: 7, server: 7}
	b.shakeHands(t, k, 0)
	for range 3 {
		throughProgram(t, b.apply[0], k.towards(100, flagged, 0), 0)
		b.counted(t, 0)
		var out []byte
		testnet.Until(t, "the lease ends", func() bool {
			out = throughProgram(t, b.apply[0], k.towards(60000, 0, 0), 0)
			return b.counted(t, 0).Expired == 1
		})
		if want := k.towards(60000, 0, 0); !bytes.Equal(out, want) {
			t.Errorf("after the lease\n out  %x\n want %x", out, want)
		}
	}
}

// An option of a signature releases no flow: the switch that advertised has found that the flow is not signed.
// The edge clears a flag from a guest whatever options the segment has.
func TestEdge_OptionFreesNothing(t *testing.T) {
	b := newEdgeBench(t, edge.Config{Lease: time.Minute})
	for i, o := range [][]byte{
		frames.Option(frames.OptionMD5, make([]byte, 16)...), frames.Option(frames.OptionAO, make([]byte, 14)...),
		append(bytes.Clone(dataOptions), frames.Option(frames.OptionAO, make([]byte, 14)...)...),
	} {
		k := &talk{name: "liar", port: uint16(1 + i), client: 7, server: 7}
		b.shakeHands(t, k, 0)
		list := frames.List(frames.OptionNop, o)
		with := func(window uint16, bits byte) []byte { return k.withOptions(window, bits, list) }
		for _, step := range []struct{ in, out []byte }{
			{with(60000, 0), with(60000, 0)},
			{with(100, flagged), with(100, 0)},
			{with(60000, 0), with(100, 0)},
		} {
			if out := throughProgram(t, b.apply[0], step.in, 0); !bytes.Equal(out, step.out) {
				t.Errorf("option %d:\n in   %x\n out  %x\n want %x", o[0], step.in, out, step.out)
			}
		}
		if out := throughProgram(t, b.guard[0], with(60000, flagged), 0); !bytes.Equal(out, with(60000, 0)) {
			t.Errorf("option %d: the guard let a flag pass: %x", o[0], out)
		}
	}
}

// A flag from the guest is cleared, and has no effect on the edge. SYNs and other bits stay.
func TestEdge_BelievesNoGuest(t *testing.T) {
	b := newEdgeBench(t, edge.Config{Lease: time.Minute})
	k := &talk{name: "forger", port: 1, client: 7, server: 7}
	for side := range 2 {
		b.shakeHands(t, k, side)
		b.counted(t, side)
		for bits := range byte(16) {
			for _, flags := range []byte{frames.ACK, frames.ACK | frames.PSH, frames.ACK | frames.FIN, frames.RST | frames.ACK, frames.RST, 0} {
				in, want := k.segment(false, flags, bits, dataOptions, 9), k.segment(false, flags, bits&^flagged, dataOptions, 9)
				if out := throughProgram(t, b.guard[side], in, 0); !bytes.Equal(out, want) {
					t.Errorf("side %d, flags %#x, bits %d:\n in   %x\n out  %x\n want %x", side, flags, bits, in, out, want)
				}
				if got, want := b.counted(t, side), (edge.Stats{Forged: uint64(bits / flagged)}); got != want {
					t.Errorf("side %d, flags %#x, bits %d: counted %+v, want %+v", side, flags, bits, got, want)
				}
				if flags&frames.RST == 0 {
					continue
				}
				// A flag that a remote forger sets on a reset does not reach the guest either.
				reset := k.segment(true, flags, bits, nil, 0)
				if out := throughProgram(t, b.apply[side], reset, 0); !bytes.Equal(out, k.segment(true, flags, bits&^flagged, nil, 0)) {
					t.Errorf("side %d, flags %#x, bits %d: a reset came out as %x", side, flags, bits, out)
				}
				b.counted(t, side)
			}
		}
		b.expect(t, k, side, 60000, 0, 60000, unadvertised)
		// The limit of the guest's own window belongs to the other direction.
		throughProgram(t, b.apply[side], k.segment(false, frames.ACK, flagged, dataOptions, 0), 0)
		b.expect(t, k, side, 60000, 0, 60000, unadvertised)
	}
}

// The same ends again are another connection: the edge forgets the advertised window and the scales of the
// former one.
func TestEdge_NewConnectionBeginsAnew(t *testing.T) {
	b := newEdgeBench(t, edge.Config{Lease: time.Minute})
	k := &talk{name: "again", port: 1, client: 7, server: 7}
	b.shakeHands(t, k, 0)
	b.expect(t, k, 0, 100, flagged, 100, entered)
	throughProgram(t, b.guard[0], k.syn(false), 0) // a SYN alone has no effect: anybody can send one
	b.expect(t, k, 0, 60000, 0, 100, applied)
	k.server = 2
	throughProgram(t, b.apply[0], k.syn(true), 0)
	b.expect(t, k, 0, 60000, 0, 60000, unadvertised)
	b.expect(t, k, 0, 300, flagged, 300, entered)
	b.expect(t, k, 0, 60000, 0, (1461+3)/4, applied)
}

// A GSO packet counts its segments.
func TestEdge_CountsSegments(t *testing.T) {
	b := newEdgeBench(t, edge.Config{Lease: time.Minute})
	k := &talk{name: "GSO", port: 1, client: 7, server: 7}
	b.shakeHands(t, k, 0)
	b.counted(t, 0)
	for _, bits := range []byte{flagged, 0} {
		in := k.towards(100+100*uint16(8-bits), bits, 2500)
		o := ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+64), Context: testSKB(3, 1000)}
		if _, err := b.apply[0].Run(&o); err != nil {
			t.Fatal(err)
		}
		if want := k.towards(100, 0, 2500); !bytes.Equal(o.DataOut, want) {
			t.Errorf("bits %d:\n out  %x\n want %x", bits, o.DataOut, want)
		}
	}
	if got, want := b.counted(t, 0), (edge.Stats{Seen: 6, Advertised: 3, Applied: 3, Entered: 1}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// SYNs, answered or not, and flows of other ports take no entries from limited flows.
func TestEdge_FloodsDoNotMakeItForget(t *testing.T) {
	const table, flood = 1024, 20 * 1024
	b := newEdgeBench(t, edge.Config{Lease: time.Minute, Connections: table})
	k := &talk{name: "limited", port: 1, client: 7, server: 7}
	b.shakeHands(t, k, 0)
	b.expect(t, k, 0, 100, flagged, 100, entered)
	for i := range flood {
		f := &talk{name: "flood", port: 2, client: 5, server: 5, ends: [2]netip.Addr{
			netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), netip.MustParseAddr("10.255.0.2")}}
		b.shakeHands(t, f, 0)
		if i%5000 == 0 {
			b.expect(t, f, 1, 60000, 0, 60000, unadvertised)
		}
	}
	b.expect(t, k, 0, 60000, 0, 100, applied)
	b.expect(t, k, 1, 60000, 0, 60000, unadvertised)
}

// If more flows have advertised windows than fit the table, each flow is limited to its own window, or passes.
func TestEdge_ForgetsWithinItsLimit(t *testing.T) {
	const table = 1024
	b := newEdgeBench(t, edge.Config{Lease: time.Minute, Connections: table})
	limited := 0
	for i := range uint16(3 * table) {
		k := &talk{name: "one", port: i}
		throughProgram(t, b.apply[0], k.towards(100+i, flagged, 0), 0)
	}
	for i := range uint16(3 * table) {
		k := &talk{name: "one", port: i}
		out := throughProgram(t, b.apply[0], k.towards(60000, 0, 0), 0)
		switch {
		case bytes.Equal(out, k.towards(100+i, 0, 0)):
			limited++
		case !bytes.Equal(out, k.towards(60000, 0, 0)):
			t.Errorf("flow %d: %x", i, out)
		}
	}
	if limited == 0 || limited > table {
		t.Errorf("%d flows are limited, the table has room for %d", limited, table)
	}
}

// With shrink: avoid no right edge moves to the left by a unit of the scale or more, whatever is advertised. Each window is
// the advertised one, or the one that keeps the edge. After a time without advertisements windows are the receiver's.
func TestEdge_KeepsRightEdges(t *testing.T) {
	b := newEdgeBench(t, edge.Config{Lease: time.Minute, Shrink: fairq.ShrinkAvoid})
	const shift = 3
	for port := range uint16(20) {
		k := &talk{name: fmt.Sprintf("connection %d", port), port: port, client: 7, server: shift}
		b.shakeHands(t, k, 0)
		const own = 20000 // the receiver's field, always
		right, now := uint32(60000), uint32(0)
		lastAdvertised := uint32(own)
		for i := range 200 {
			k.acked = uint32(i) * 3001
			bits, field := byte(0), uint16(own)
			if i >= 5 && (i+int(port))%4 == 0 {
				bits, field = flagged, uint16(200+(uint32(i)*7919+uint32(port)*104729)%5000)
				lastAdvertised = uint32(field)
			}
			v := frames.Parse(throughProgram(t, b.apply[0], k.towards(field, bits, 0), 0))
			now = k.acked + uint32(v.Window())<<shift
			if int32(now-right) <= -1<<shift {
				t.Fatalf("%s, ACK %d: right edge moves from %d to %d", k.name, i, right, now)
			}
			if w := uint32(v.Window()); w > max(lastAdvertised, (right-k.acked+1<<shift-1)>>shift) {
				t.Fatalf("%s, ACK %d: window %d, advertised %d, edge at %d of %d", k.name, i, w, lastAdvertised, right, k.acked)
			}
			right = max(right, now)
		}
	}
}

// testSKB is struct __sk_buff as BPF_PROG_TEST_RUN takes it, with the fields of a GSO packet.
func testSKB(segments, size uint32) []byte {
	b := make([]byte, 192)
	binary.NativeEndian.PutUint32(b[164:], segments)
	binary.NativeEndian.PutUint32(b[176:], size)
	return b
}
