package frames_test

import (
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"testing"

	"weir/datapath/internal/frames"
)

func segment() *frames.Segment {
	return &frames.Segment{
		Link:     frames.Link{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}},
		IP:       frames.IP{From: netip.MustParseAddr("10.0.0.2"), To: netip.MustParseAddr("10.0.0.1")},
		FromPort: 80, ToPort: 40000, Seq: 7001, Ack: 3001, Flags: frames.ACK, Window: 60000,
		Options: frames.List(frames.OptionNop, frames.Nop, frames.Nop, frames.Timestamps(1, 2)), Payload: []byte("odd"),
	}
}

// captured has frames that Linux sent, with checksum offload off, and their fields.
func captured() map[string]frames.Segment {
	host, peer := [6]byte{2, 0, 0, 0, 0, 1}, [6]byte{2, 0, 0, 0, 0, 2}
	v4, peer4 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	v6, peer6 := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	return map[string]frames.Segment{
		"02000000000102000000000208004500003c00004000400626ba0a0000020a0000010050d802776c33ad44818c79a012fe88b1d90000020405b40402080adb31c86c3813536f0103030a": {
			Link: frames.Link{Dst: host, Src: peer}, IP: frames.IP{From: peer4, To: v4, Fragment: 0x4000},
			FromPort: 80, ToPort: 0xd802, Seq: 0x776c33ad, Ack: 0x44818c79, Flags: frames.SYN | frames.ACK, Window: 0xfe88,
			Options: frames.List(frames.OptionNop, frames.MSS(1460), frames.Option(frames.OptionPermitted), frames.Timestamps(0xdb31c86c, 0x3813536f), frames.Nop, frames.Scale(10)),
		},
		"020000000001020000000002080045000037026240004006245d0a0000020a0000010050d802776c33ae44818c7e801800400b7c00000101080adb31c86c381353706f6464": {
			Link: frames.Link{Dst: host, Src: peer}, IP: frames.IP{From: peer4, To: v4, Fragment: 0x4000, ID: 0x262},
			FromPort: 80, ToPort: 0xd802, Seq: 0x776c33ae, Ack: 0x44818c7e, Flags: frames.PSH | frames.ACK, Window: 64,
			Options: frames.List(frames.OptionNop, frames.Nop, frames.Nop, frames.Timestamps(0xdb31c86c, 0x38135370)), Payload: []byte("odd"),
		},
		"02000000000202000000000186dd60018f8b00280640fd000000000000000000000000000001fd000000000000000000000000000002d70a0050bae82ef700000000a002fd2013ef0000020405a00402080a6c070fbb000000000103030a": {
			Link: frames.Link{Dst: peer, Src: host}, IP: frames.IP{From: v6, To: peer6, ID: 0x18f8b},
			FromPort: 0xd70a, ToPort: 80, Seq: 0xbae82ef7, Flags: frames.SYN, Window: 0xfd20,
			Options: frames.List(frames.OptionNop, frames.MSS(1440), frames.Option(frames.OptionPermitted), frames.Timestamps(0x6c070fbb, 0), frames.Nop, frames.Scale(10)),
		},
		"02000000000102000000000286dd600b0dfe00230640fd000000000000000000000000000002fd0000000000000000000000000000010050d70a86ee6aa9bae82efd8018003fb46600000101080a8aad375f6c0713b76f6464": {
			Link: frames.Link{Dst: host, Src: peer}, IP: frames.IP{From: peer6, To: v6, ID: 0xb0dfe},
			FromPort: 80, ToPort: 0xd70a, Seq: 0x86ee6aa9, Ack: 0xbae82efd, Flags: frames.PSH | frames.ACK, Window: 63,
			Options: frames.List(frames.OptionNop, frames.Nop, frames.Nop, frames.Timestamps(0x8aad375f, 0x6c0713b7)), Payload: []byte("odd"),
		},
	}
}

// The builder makes the same bytes as Linux from the same fields.
func TestSegment_AsLinuxBuildsIt(t *testing.T) {
	for text, s := range captured() {
		want, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Bytes(); string(got) != string(want) {
			t.Errorf("\n built %x\n Linux %x", got, want)
		}
		v := frames.Parse(want)
		if v.Kind != frames.KindTCP || v.ChecksumError() != 0 || string(v.Options()) != string(s.Options) ||
			v.Window() != s.Window || v.Flags() != s.Flags || v.End != len(want) {
			t.Errorf("parsed as %+v, checksum off by %#x", v, v.ChecksumError())
		}
	}
}

// The checksum covers every bit of the segment and of the addresses, and nothing else.
func TestView_ChecksumCoversAll(t *testing.T) {
	for _, from := range []string{"10.0.0.2", "fd00::2"} {
		s := segment()
		s.From = netip.MustParseAddr(from)
		if s.From.Is6() {
			s.To = netip.MustParseAddr("fd00::1")
		}
		s.Padding = 5
		b := s.Bytes()
		v := frames.Parse(b)
		for i := range b {
			address := i >= v.L3+12 && i < v.L3+20
			if s.From.Is6() {
				address = i >= v.L3+8 && i < v.L3+40
			}
			covered := address || i >= v.L4 && i < v.End
			for bit := range 8 {
				b[i] ^= 1 << bit
				w := v
				w.Frame = b
				if (i != v.L3 || bit < 4) && (w.ChecksumError() != 0) != covered {
					t.Errorf("%s: bit %d of byte %d: off by %#x", from, bit, i, w.ChecksumError())
				}
				b[i] ^= 1 << bit
			}
		}
	}
}

// Check finds every change of a frame other than a smaller window with its checksum.
func TestRules_Check(t *testing.T) {
	var none frames.Rules
	s := segment()
	in := s.Bytes()
	v := frames.Parse(in)
	with := func(change func(*frames.Segment)) []byte { c := *s; change(&c); return c.Bytes() }
	good := with(func(s *frames.Segment) { s.Window = 200 })
	if rewritten, err := none.Check(in, good); !rewritten || err != nil {
		t.Errorf("a smaller window: %t, %v", rewritten, err)
	}
	if rewritten, err := none.Check(in, in); rewritten || err != nil {
		t.Errorf("nothing: %t, %v", rewritten, err)
	}
	for name, out := range map[string][]byte{
		"larger": with(func(s *frames.Segment) { s.Window = 60001 }), "closed": with(func(s *frames.Segment) { s.Window = 0 }),
		"reserved bits": with(func(s *frames.Segment) { s.Reserved = 1 }), "flags": with(func(s *frames.Segment) { s.Flags |= frames.PSH }),
		"urgent": with(func(s *frames.Segment) { s.Urgent = 1 }), "cut": good[:len(good)-1], "longer": append(good, 0),
	} {
		if _, err := none.Check(in, out); err == nil {
			t.Errorf("%s: not found", name)
		}
	}
	for i := range good {
		for bit := range 8 {
			bad := append([]byte(nil), good...)
			bad[i] ^= 1 << bit
			if _, err := none.Check(in, bad); err == nil {
				t.Errorf("bit %d of byte %d (TCP at %d): not found", bit, i, v.L4)
			}
		}
	}
	for name, change := range map[string]func(*frames.Segment){
		"SYN": func(s *frames.Segment) { s.Flags = frames.SYN }, "RST": func(s *frames.Segment) { s.Flags |= frames.RST },
		"fragment": func(s *frames.Segment) { s.Fragment = 0x2000 },
	} {
		out := with(func(s *frames.Segment) { change(s); s.Window = 200 })
		if _, err := none.Check(with(change), out); err == nil {
			t.Errorf("window of a %s changed: not found", name)
		}
	}
	// A wrong checksum must stay wrong: a corrected one would hide an error of the path.
	wrong := append([]byte(nil), in...)
	wrong[v.Data]++
	if _, err := none.Check(wrong, append(good[:v.Data:v.Data], wrong[v.Data:]...)); err != nil {
		t.Errorf("wrong by as much as before: %v", err)
	}
	repaired := frames.Parse(append(good[:v.Data:v.Data], wrong[v.Data:]...))
	repaired.SetChecksum()
	if _, err := none.Check(wrong, repaired.Frame); err == nil {
		t.Error("a wrong checksum that was repaired: not found")
	}
}

// With unify the scale of a SYN may change, but no other option, and windows may grow.
func TestRules_CheckUnify(t *testing.T) {
	syn := segment()
	syn.Flags, syn.Payload = frames.SYN, nil
	syn.Options = frames.List(frames.OptionNop, frames.MSS(1460), frames.Scale(2))
	other := *syn
	other.Options = frames.List(frames.OptionNop, frames.MSS(1460), frames.Scale(9))
	smaller := *syn
	smaller.Options = frames.List(frames.OptionNop, frames.MSS(1400), frames.Scale(2))
	ack, larger := segment(), *segment()
	larger.Window++
	for _, c := range []struct {
		name    string
		in, out *frames.Segment
		ok      bool
	}{{"scale", syn, &other, true}, {"MSS", syn, &smaller, false}, {"window", ack, &larger, true}} {
		if _, err := (frames.Rules{Unify: true}).Check(c.in.Bytes(), c.out.Bytes()); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := (frames.Rules{}).Check(c.in.Bytes(), c.out.Bytes()); err == nil {
			t.Errorf("%s without unify: not found", c.name)
		}
	}
}

// The frames of Traffic are complete and correct before they are mutated, and connections are complete.
func TestTraffic(t *testing.T) {
	traffic := frames.NewTraffic(rand.New(rand.NewPCG(1, 2)), 64)
	flags := map[byte]int{}
	for range 100_000 {
		in := traffic.Next()
		v := frames.Parse(in.Data)
		if v.Kind != frames.KindTCP || v.ChecksumError() != 0 {
			t.Fatalf("%v, checksum off by %#x: %x", v.Kind, v.ChecksumError(), in.Data)
		}
		flags[v.Flags()&(frames.SYN|frames.ACK|frames.FIN|frames.RST)]++
	}
	for _, f := range []byte{frames.SYN, frames.SYN | frames.ACK, frames.ACK, frames.ACK | frames.FIN, frames.RST | frames.ACK} {
		if flags[f] < 100 {
			t.Errorf("%d segments with flags %#x", flags[f], f)
		}
	}
}

// The mutator makes every kind of frame, and one seed always gives the same frames.
func TestMutate(t *testing.T) {
	kinds := map[frames.Kind]int{}
	var sums [2]uint64
	for i := range sums {
		r := rand.New(rand.NewPCG(3, 4))
		traffic := frames.NewTraffic(r, 64)
		for range 50_000 {
			b := frames.Mutate(r, traffic.Next().Data)
			kinds[frames.Parse(b).Kind]++
			for _, c := range b {
				sums[i] = sums[i]*31 + uint64(c)
			}
		}
	}
	if sums[0] != sums[1] {
		t.Error("two runs from one seed differ")
	}
	for k := frames.KindTCP; k <= frames.KindShort; k++ {
		if kinds[k] < 500 {
			t.Errorf("%d frames of kind %v", kinds[k], k)
		}
	}
}
