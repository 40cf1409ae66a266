package fairq_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/fairq/shim"
	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/frames"
	"weir/internal/testseed"
)

// checkBits returns an error for a change that a shim may not make. It may only change the reserved bits of a
// segment that acknowledges, is no SYN and is not signed, and update its checksum. A correct checksum must stay
// correct, and a wrong one wrong by the same amount.
func checkBits(in, out []byte) (changed bool, err error) {
	if bytes.Equal(in, out) {
		return false, nil
	}
	a := frames.Parse(in)
	if len(in) != len(out) || a.Kind != frames.KindTCP {
		return true, fmt.Errorf("%d bytes (%v) became %d", len(in), a.Kind, len(out))
	}
	for i := range in {
		bits := i == a.L4+12 && in[i]>>4 == out[i]>>4
		if in[i] != out[i] && !bits && i != a.L4+16 && i != a.L4+17 {
			return true, fmt.Errorf("byte %d was changed; TCP begins at %d", i, a.L4)
		}
	}
	b := a
	b.Frame = out
	switch {
	case a.Flags()&(frames.ACK|frames.SYN) != frames.ACK:
		return true, fmt.Errorf("a segment with flags %#x was changed", a.Flags())
	case frames.Signed(a.Options()):
		return true, fmt.Errorf("a signed segment was changed")
	case a.ChecksumError() != b.ChecksumError():
		return true, fmt.Errorf("checksum was off by %#x and now is by %#x", a.ChecksumError(), b.ChecksumError())
	}
	return true, nil
}

// mutated returns a frame of one of the connections, some of it overwritten, and perhaps cut or padded.
func mutated(r *rand.Rand, all []talk) []byte {
	k := &all[r.IntN(len(all))]
	server := r.IntN(2) == 1
	in := k.ack(server, byte(r.IntN(16)), r.IntN(3)*r.IntN(300))
	switch r.IntN(8) {
	case 0:
		in = k.syn(server)
	case 1:
		signed := frames.Option(frames.OptionMD5, make([]byte, 16)...)
		in = k.segment(server, frames.ACK, byte(r.IntN(16)), frames.List(frames.OptionNop, signed), r.IntN(50))
	case 2:
		in = k.segment(server, byte(r.IntN(256)), byte(r.IntN(16)), dataOptions, r.IntN(50))
	}
	if v := frames.Parse(in); r.IntN(2) == 0 { // within the TCP header, so that many still get that far
		in[v.L4+r.IntN(v.Data-v.L4)] ^= byte(1 << r.IntN(8))
	}
	for range r.IntN(4) * r.IntN(2) {
		in[12+r.IntN(len(in)-12)] = byte(r.Uint32())
	}
	switch r.IntN(6) {
	case 0:
		in = in[:14+r.IntN(len(in)-13)]
	case 1:
		in = append(in, make([]byte, r.IntN(20))...)
	}
	return in
}

// Random and mutated frames of known connections: only reserved bits and checksum ever change, every checksum
// keeps its error, nothing is lost, and each packet is counted once.
func TestShim_ChangesNothingElse(t *testing.T) {
	const runs = 60_000
	r := testseed.New(t)
	b := newShimBench(t)
	var all []talk
	for i, k := range headers() {
		k.port, k.client, k.server = uint16(i), r.IntN(16), r.IntN(16)
		b.shakeHands(t, &k, false, false)
		b.shakeHands(t, &k, true, true)
		all = append(all, k)
	}
	b.counted(t, 0)
	b.counted(t, 1)
	var ran, changed [2]uint64
	for range runs {
		in := mutated(r, all)
		for i, p := range []*ebpf.Program{b.send, b.clear, b.hearSending} {
			o := ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+64)}
			verdict, err := p.Run(&o)
			if bpftest.Refused(err) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			wrote, err := checkBits(in, o.DataOut)
			if wrote && i == 2 {
				err = fmt.Errorf("the reader changed it")
			}
			if err != nil || verdict != bpftest.TCXNext {
				t.Fatalf("program %d returned %d: %v\n in  %x\n out %x", i, int32(verdict), err, in, o.DataOut)
			}
			if i < 2 {
				ran[i]++
			}
			if wrote {
				changed[i]++
			}
		}
	}
	for side := range 2 {
		c := b.counted(t, side)
		sum := c.NotTCP + c.Tunnel + c.Fragment + c.Short + c.NoAck + c.Written + c.Same + c.Unknown + c.Signed + c.AccECN + c.Unwritable
		if c.Seen != ran[side] || sum != c.Seen || c.Written != changed[side] || changed[side] < runs/20 {
			t.Errorf("%d frames, %d changed, counted %+v", ran[side], changed[side], c)
		}
	}
	t.Logf("%d frames each, %d and %d changed", ran[0], changed[0], changed[1])
}

// A full table removes entries, and the shim ignores their connections: it never writes a wrong scale.
func TestShim_ForgetsWithinItsLimit(t *testing.T) {
	const table = 1024
	b := newShimBenchOf(t, shim.Config{Connections: table})
	known := 0
	var all []talk
	for i := range 4 * table {
		k := talk{name: "one", port: uint16(i), client: 1 + i%14, server: 3}
		throughProgram(t, b.send, k.syn(false), 0)
		throughProgram(t, b.hearSending, k.syn(true), 0)
		all = append(all, k)
	}
	for i := range all {
		switch bits := b.reserved(t, &all[i]); bits {
		case 0:
		case byte(all[i].client):
			known++
		default:
			t.Errorf("connection %d: bits %d, want %d or none", i, bits, all[i].client)
		}
	}
	if known == 0 || known > table {
		t.Errorf("%d of %d connections are known, the table holds %d", known, len(all), table)
	}
}
