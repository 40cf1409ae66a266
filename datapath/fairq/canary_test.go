package fairq

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weir/datapath/internal/frames"
	"weir/internal/testseed"
)

// modePipe and rowTarget give one flow of a port an equilibrium window of 51200 bytes, more than rowGrant.
const modePipe = 51200 - rowTarget

func modeLaw(mode Mode, share uint32) fairqPortConfig {
	return fairqPortConfig{Mode: uint32(mode), LimitedBuckets: share, PipeBytes: modePipe}
}

// dataGroups reads the groups of the port that the tables' data leaves by, summed over the CPUs.
func (s *frameSwitch) dataGroups(tb testing.TB) [2]Group {
	tb.Helper()
	a, err := s.groups(1, &fairqPort{})
	if err != nil {
		tb.Fatal(err)
	}
	return a.group
}

// entry returns the flow table's entry of a connection.
func (s *frameSwitch) entry(tb testing.TB, c *frameConn) (k fairqFlowKey, v fairqConnection) {
	tb.Helper()
	found := false
	s.walk(tb, func(key *fairqFlowKey, one *fairqConnection) {
		if one.Ends.end(0).Port() == c.port || one.Ends.end(1).Port() == c.port {
			found, k, v = true, *key, *one
		}
	})
	if !found {
		tb.Fatalf("the connection from port %d is not in the table", c.port)
	}
	return k, v
}

// Each mode limits an acknowledgement or passes it, and counts it in a group. 400 is the field of an
// equilibrium window of 51200 bytes, 200 that of a grant of 25600.
func TestFairQFrames_Mode(t *testing.T) {
	for _, scale := range []uint8{0, scaleUnify} {
		for _, r := range []struct {
			name    string
			law     fairqPortConfig
			in, out uint16 // fields
			why     fairqPortCounts
			group   int
			limited uint64
			offered uint32
			granted uint32
		}{
			{name: "all", law: modeLaw(EnforceAll, 0), in: 500, out: 200, group: 1, limited: 1, offered: 64000, granted: 25600},
			{name: "all, small", law: modeLaw(EnforceAll, 0), in: 150, out: 150, why: fairqPortCounts{Smaller: 1}, group: 1, offered: 19200, granted: 19200},
			{name: "a share of all", law: modeLaw(EnforcePart, Buckets), in: 500, out: 200, group: 1, limited: 1, offered: 64000, granted: 25600},
			{name: "a share of none", law: modeLaw(EnforcePart, 0), in: 500, out: 500, why: fairqPortCounts{Free: 1}, limited: 1, offered: 64000, granted: 51200},
			{name: "none", law: modeLaw(EnforceNone, 0), in: 500, out: 500, why: fairqPortCounts{Free: 1}, limited: 1, offered: 64000, granted: 51200},
			{name: "none, whatever its share", law: modeLaw(EnforceNone, Buckets), in: 500, out: 500, why: fairqPortCounts{Free: 1}, limited: 1, offered: 64000, granted: 51200},
			{name: "none, below the equilibrium", law: modeLaw(EnforceNone, 0), in: 350, out: 350, why: fairqPortCounts{Free: 1}, offered: 44800, granted: 44800},
			{name: "an unknown mode is all", law: modeLaw(77, 0), in: 500, out: 200, group: 1, limited: 1, offered: 64000, granted: 25600},
		} {
			t.Run(fmt.Sprintf("%s,scale=%d", r.name, scale), func(t *testing.T) {
				f := newFrameTable(t, frameConfig{law: r.law, scale: scale, unifyShift: rowShift})
				c := f.conn(frames.IP{})
				c.open(t, f.frameSwitch)
				before := f.dataGroups(t)
				s := c.segment()
				s.Window = r.in
				f.rewritten(t, r.name, s, r.out, r.why)
				after := f.dataGroups(t)
				for group := range after {
					want := before[group]
					if group == r.group {
						want.Acks, want.Limited = want.Acks+2, want.Limited+2*r.limited // a row is sent twice
					}
					if after[group] != want {
						t.Errorf("group %d: %+v, want %+v", group, after[group], want)
					}
				}
				_, v := f.entry(t, c)
				side := 0
				if v.Ends.end(1).Port() == c.port {
					side = 1
				}
				if e := v.Acks[1-side]; e.Offered != r.offered || e.Granted != r.granted {
					t.Errorf("offered %d, granted %d; want %d and %d", e.Offered, e.Granted, r.offered, r.granted)
				}
			})
		}
	}
}

// The integrator rests if not every flow is limited: the window is then the equilibrium's, for any queue.
func TestFairQFrames_Equilibrium(t *testing.T) {
	for _, mode := range []Mode{EnforcePart, EnforceNone} {
		f := newFrameTable(t, frameConfig{law: modeLaw(mode, Buckets)})
		for flows := uint64(1); flows <= 40; flows++ {
			f.conn(frames.IP{}).open(t, f.frameSwitch)
			var p fairqPort
			if err := f.Ports.Lookup(uint32(1), &p); err != nil {
				t.Fatal(err)
			}
			want := max((modePipe+rowTarget)<<8/flows, 1460<<8)
			if p.EquilibriumQ8 != want || uint64(p.Law.Flows) != flows {
				t.Errorf("%v, %d flows: an equilibrium of %d of 256ths of a byte with %d flows, want %d", mode, flows, p.EquilibriumQ8, p.Law.Flows, want)
			}
			if before := p.Law.AggregateQ8; before != rowTarget<<8 {
				t.Errorf("%v: the law ran: its windows are %d together", mode, before>>8)
			}
		}
	}
}

// sip is SipHash-c-d (Aumasson and Bernstein), written from the paper.
func sip(c, d int, k0, k1 uint64, message []byte) uint64 {
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	rounds := func(n int) {
		for range n {
			v[0] += v[1]
			v[1] = bits.RotateLeft64(v[1], 13) ^ v[0]
			v[0] = bits.RotateLeft64(v[0], 32)
			v[2] += v[3]
			v[3] = bits.RotateLeft64(v[3], 16) ^ v[2]
			v[0] += v[3]
			v[3] = bits.RotateLeft64(v[3], 21) ^ v[0]
			v[2] += v[1]
			v[1] = bits.RotateLeft64(v[1], 17) ^ v[2]
			v[2] = bits.RotateLeft64(v[2], 32)
		}
	}
	padded := append([]byte(nil), message...)
	for len(padded)%8 != 7 {
		padded = append(padded, 0)
	}
	padded = append(padded, byte(len(message)))
	for ; len(padded) > 0; padded = padded[8:] {
		word := binary.LittleEndian.Uint64(padded)
		v[3] ^= word
		rounds(c)
		v[0] ^= word
	}
	v[2] ^= 0xff
	rounds(d)
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

// bucket returns the bucket that a connection must have.
func (k *fairqFlowEnds) bucket(seed [2]uint64) uint16 {
	var b []byte
	for end := range k.Address {
		for _, word := range k.Address[end] {
			b = binary.LittleEndian.AppendUint32(b, word)
		}
	}
	b = binary.LittleEndian.AppendUint16(b, k.Port[0])
	b = binary.LittleEndian.AppendUint16(b, k.Port[1])
	return uint16(sip(1, 3, seed[0], seed[1], binary.LittleEndian.AppendUint32(b, k.Vlans)))
}

func (s *frameSwitch) setSeed(tb testing.TB, seed [2]uint64) {
	tb.Helper()
	var c fairqControl
	if err := s.Controls.Lookup(uint32(0), &c); err != nil {
		tb.Fatal(err)
	}
	c.Seed = seed
	if err := s.Controls.Put(uint32(0), c); err != nil {
		tb.Fatal(err)
	}
}

// Connections that a sender makes as similar as possible fall into the groups as coins would. Each share is
// within five deviations, whatever the seed, and a larger share limits the same flows and more.
func TestFairQFrames_Share(t *testing.T) {
	message := make([]byte, 15)
	for i := range message {
		message[i] = byte(i)
	}
	if got := sip(2, 4, 0x0706050403020100, 0x0f0e0d0c0b0a0908, message); got != 0xa129ca6149be45e5 { // the paper's example
		t.Fatalf("the test's own SipHash gives %x", got)
	}
	const flows = 1 << 12
	r := testseed.New(t)
	for name, ip := range map[string]func(i int) frames.IP{
		"ports": func(int) frames.IP { return frames.IP{} },
		"addresses": func(i int) frames.IP {
			return frames.IP{From: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), To: leftIPv4}
		},
		"IPv6": func(int) frames.IP { return frames.IP{From: rightIPv6, To: leftIPv6} },
	} {
		f := newFrameTable(t, frameConfig{law: modeLaw(EnforcePart, Buckets/10)})
		seed := [2]uint64{r.Uint64(), r.Uint64()}
		f.setSeed(t, seed)
		for i := range flows {
			c := f.conn(ip(i))
			c.open(t, f.frameSwitch)
		}
		var buckets []uint16
		f.walk(t, func(_ *fairqFlowKey, c *fairqConnection) {
			if want := c.Ends.bucket(seed); c.Bucket != want {
				t.Fatalf("%s: %v has the bucket %d, want %d", name, c.Ends.end(0), c.Bucket, want)
			}
			buckets = append(buckets, c.Bucket)
		})
		if len(buckets) != flows {
			t.Fatalf("%s: %d connections in the table", name, len(buckets))
		}
		for _, percent := range []float64{1, 10, 50, 90} {
			share := uint32(math.Round(Buckets * percent / 100))
			limited := 0
			for _, bucket := range buckets {
				if uint32(bucket) >= Buckets-share {
					limited++
				}
			}
			p := float64(share) / Buckets
			mean, deviation := flows*p, math.Sqrt(flows*p*(1-p))
			if math.Abs(float64(limited)-mean) > 5*deviation {
				t.Errorf("%s, seed %x: of %d flows %d are limited, want %.0f +- %.0f", name, seed, flows, limited, mean, 5*deviation)
			}
			t.Logf("%s, %g %%: of %d flows %d are limited (mean %.0f, deviation %.1f)", name, percent, flows, limited, mean, deviation)
		}
	}
}

// A flow stays in its group, also after its entry is removed and it is adopted again, in another process's
// program, in its other direction. Its bucket decides.
func TestFairQFrames_GroupStays(t *testing.T) {
	f := newFrameTable(t, frameConfig{law: modeLaw(EnforcePart, Buckets/2)})
	f.setSeed(t, [2]uint64{1, 2})
	limited := 0
	for range 64 {
		c := f.conn(frames.IP{})
		c.synAck, c.syn = nil, nil // no scale, so that it is known after an adoption too
		c.open(t, f.frameSwitch)
		k, v := f.entry(t, c)
		is := v.Bucket >= Buckets/2
		if is {
			limited++
		}
		check := func(when string) {
			t.Helper()
			f.setGrant(t, 1, rowGrant)
			why, field := fairqPortCounts{Free: 1}, uint16(rowWindow)
			if is {
				why, field = fairqPortCounts{}, rowGrant
			}
			f.rewritten(t, when, c.segment(), field, why)
		}
		check("at first")
		f.remove(t, k)
		c.adopt(t, f.frameSwitch)
		check("adopted")
	}
	if limited < 10 || limited > 54 {
		t.Errorf("%d of 64 are limited", limited)
	}
}

// With `shrink: avoid` the window granted to an unlimited flow counts when it is limited again: no right edge
// moves left.
func TestFairQFrames_FreeWindowsBind(t *testing.T) {
	f := newFrameTable(t, frameConfig{law: modeLaw(EnforceNone, 0), shrink: 1})
	c := f.conn(frames.IP{})
	c.open(t, f.frameSwitch)
	s := c.segment()
	s.Window = 500
	f.same(t, "free", s.Bytes(), fairqPortCounts{Free: 1})
	var p fairqPort
	if err := f.Ports.Lookup(uint32(1), &p); err != nil {
		t.Fatal(err)
	}
	p.Spared, p.GrantQ8 = 0, rowGrant<<8
	if err := f.Ports.Put(uint32(1), p); err != nil {
		t.Fatal(err)
	}
	f.same(t, "limited, at the same byte", s.Bytes(), fairqPortCounts{Smaller: 1})
	s.Ack += 12800
	f.rewritten(t, "12800 bytes later", s, 400, fairqPortCounts{})
	s.Ack += 64000
	f.rewritten(t, "when the edge is behind", s, rowField, fairqPortCounts{})
}

// An impossible law is refused, with the reason in the error.
func TestFairQLaw_ModeIsChecked(t *testing.T) {
	for _, r := range []struct {
		mode        Mode
		share, pipe uint32
		says        string // "": it is possible
	}{
		{EnforceAll, 0, 0, ""}, {EnforcePart, Buckets, 1, ""}, {EnforceNone, 0, 1, ""},
		{EnforcePart, Buckets + 1, 1, "a share of 65537 is limited: at most 65536"},
		{EnforcePart, 1, 0, "need the BDP"}, {EnforceNone, 0, 0, "need the BDP"},
		{3, 0, 1, "mode 3"},
	} {
		law := Law{TargetBytes: 1, Tick: time.Millisecond, Period: time.Millisecond, Mode: r.mode, LimitedBuckets: r.share, PipeBytes: r.pipe}
		err := law.check()
		if (err == nil) != (r.says == "") || err != nil && !strings.Contains(err.Error(), r.says) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}
