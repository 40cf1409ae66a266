package mark_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/marktest"
	"weir/datapath/mark"
	"weir/internal/testseed"
)

// slowMark is the program in the plainest Go: what it does with a frame, and why. It follows the specification
// at the head of core/mark.h and bpf/lib/frame.h, and computes checksums in full.
func slowMark(in []byte, c marktest.MarkMarkConfig, backlog uint32) (out []byte, drop bool, why mark.Stats) {
	out, why.Seen = bytes.Clone(in), 1
	at := 12
	for tags := 0; ; tags++ {
		if len(in) < at+2 {
			why.PassedShort = 1
			return out, false, why
		}
		tagged := in[at] == 0x81 && in[at+1] == 0x00 || in[at] == 0x88 && in[at+1] == 0xa8
		if !tagged || tags == 2 {
			break
		}
		at += 4
	}
	ip := in[at+2:]
	var ecn byte
	switch {
	case in[at] == 0x08 && in[at+1] == 0x00:
		if len(ip) < 20 || ip[0]/16 != 4 || ip[0]%16 < 5 || int(ip[0]%16)*4 > len(ip) {
			why.PassedShort = 1
			return out, false, why
		}
		ecn = ip[1] % 4
	case in[at] == 0x86 && in[at+1] == 0xdd:
		if len(ip) < 40 || ip[0]/16 != 6 {
			why.PassedShort = 1
			return out, false, why
		}
		ecn = ip[1] / 16 % 4
	default:
		why.PassedNotIP = 1
		return out, false, why
	}
	switch {
	case backlog <= c.ThresholdBytes:
		why.PassedUnder = 1
	case c.Action == 1:
		why.DroppedByLaw = 1
		return out, true, why
	case ecn == ce:
		why.PassedCE = 1
	case ecn == notECT && c.NotEct == 1:
		why.DroppedNotECT = 1
		return out, true, why
	case ecn == notECT:
		why.PassedNotECT = 1
	default:
		why.Marked = 1
		setCE(out[at+2:])
	}
	return out, false, why
}

// setCE marks a packet and keeps the error of its header checksum, if it has one: the checksum field changes by
// as much as the sum of the rest does.
func setCE(ip []byte) {
	if ip[0]/16 == 6 {
		ip[1] |= 0x30
		return
	}
	before := uint32(ip[1])
	ip[1] |= 3
	check := uint32(^(uint16(ip[10])<<8 | uint16(ip[11])))
	check += uint32(ip[1]) - before // ones' complement: add, fold
	check = check&0xffff + check>>16
	ip[10], ip[11] = ^byte(check>>8), ^byte(check)
}

// randomFrame returns an IP frame with some of its head overwritten, and perhaps cut.
func randomFrame(r *rand.Rand) []byte {
	all := packets()
	f := all[r.IntN(len(all))]
	stacks := [][]uint16{nil, nil, {0x8100}, {0x88a8}, {0x88a8, 0x8100}, {0x8100, 0x8100, 0x8100}}
	f.tags = stacks[r.IntN(len(stacks))]
	f.dscp = byte(r.IntN(64))
	f.options = r.IntN(11) * 4
	b := f.bytes(byte(r.IntN(4)))
	for range r.IntN(4) {
		b[12+r.IntN(min(len(b), 66)-12)] = byte(r.Uint32())
	}
	if r.IntN(3) == 0 {
		b = b[:14+r.IntN(len(b)-13)]
	}
	return b
}

// 40,000 random frames, thresholds and backlogs: the kernel program agrees with the plain version, and keeps
// the packet's whole-packet checksum right.
func TestMark_AgreesWithPlainGo(t *testing.T) {
	m := newTestMark(t)
	seed := testseed.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	runs, acted := 0, 0
	for runs < 40_000 {
		c := marktest.MarkMarkConfig{ThresholdBytes: r.Uint32N(1 << (r.IntN(32))), Action: uint8(r.IntN(3)), NotEct: uint8(r.IntN(3))}
		backlog := r.Uint32()
		if r.IntN(2) == 0 {
			backlog = c.ThresholdBytes + r.Uint32N(3) - 1
		}
		m.set(t, c, backlog)
		for range 16 {
			in := randomFrame(r)
			verdict, out, err := m.run(in, bpftest.ChecksumComplete*uint32(r.IntN(2)))
			if bpftest.Refused(err) {
				continue
			}
			if err != nil {
				t.Fatalf("seed %d: %v: %x", seed, err, in)
			}
			runs++
			want, drop, why := slowMark(in, c, backlog)
			if got := m.counted(t); got != why || !bytes.Equal(out, want) || (verdict == bpftest.TCXDrop) != drop || verdict != bpftest.TCXDrop && verdict != bpftest.TCXNext {
				t.Fatalf("seed %d, %+v, backlog %d: returned %d, counted %+v, want drop %t, %+v\n in   %x\n out  %x\n want %x",
					seed, c, backlog, int32(verdict), got, drop, why, in, out, want)
			}
			acted += int(why.Marked + why.DroppedByLaw + why.DroppedNotECT)
		}
	}
	t.Logf("%d frames, %d marked or dropped", runs, acted)
	if acted*20 < runs || runs < 1000 {
		t.Errorf("only %d of %d frames were acted on: the generator hardly reaches the law", acted, runs)
	}
}
