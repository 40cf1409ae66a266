package fairq

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"weir/datapath/internal/frames"
)

var md5Option = frames.List(frames.OptionNop, frames.Option(frames.OptionMD5, make([]byte, 16)...))

// signing adds the option to a segment.
func signing(s *frames.Segment) *frames.Segment {
	s.Options = md5Option
	return s
}

// sends sends a frame out of a port and returns whether the program passed it on.
func (s *frameSwitch) sends(t *testing.T, port int, in []byte) (passed bool) {
	t.Helper()
	_, err := s.run(port, in, 0, nil)
	if err != nil && err.Error() != "the program returned 2, not NEXT" {
		t.Fatal(err)
	}
	return err == nil
}

// A connection is signed if both SYNs were. Its signed segments pass unchanged. One without a signature, which
// its ends discard, is rewritten as any other. If a SYN was not signed, the option in later segments has no
// effect.
func TestFairQFrames_SignedHandshake(t *testing.T) {
	f := newFrameTable(t, frameConfig{})
	for name, list := range signed() {
		for _, side := range []string{"none", "left", "right", "both"} {
			c := f.conn(frames.IP{})
			shift := rowShift
			if side == "left" || side == "both" {
				c.syn, shift = list, 0 // the option takes the scale's place
			}
			if side == "right" || side == "both" {
				c.synAck, shift = list, 0
			}
			c.open(t, f.frameSwitch)
			for _, payload := range [][]byte{nil, []byte("data")} {
				s := c.segment()
				s.Payload = payload
				why := fairqPortCounts{Data: uint64(min(1, len(payload)))}
				field := uint16(rowGrant >> shift)
				f.rewritten(t, name+", "+side+", without", s, field, why)
				s.Options = list
				if side != "both" {
					f.rewritten(t, name+", "+side, s, field, why)
					continue
				}
				why.Signed = 1
				f.same(t, name+", both", s.Bytes(), why)
			}
		}
	}
}

// A SYN that is forged between two genuine ones has no effect: it has another number.
func TestFairQFrames_SignedForgedHandshake(t *testing.T) {
	f := newFrameTable(t, frameConfig{})
	for _, forged := range []struct {
		name  string
		port  int // that it leaves by
		flags byte
		seq   uint32
	}{
		{"SYN", 1, frames.SYN, 99_000}, {"SYN-ACK", 0, frames.SYN | frames.ACK, 99_000},
	} {
		c := f.conn(frames.IP{})
		syn, synAck, ack := c.back(), c.segment(), c.back()
		syn.Flags, syn.Seq, syn.Ack, syn.Options = frames.SYN, 3000, 0, c.syn
		synAck.Flags, synAck.Seq, synAck.Options = frames.SYN|frames.ACK, 7000, c.synAck
		f.mustRun(t, 1, syn.Bytes())
		fake := *syn
		if forged.port == 0 {
			fake = *synAck
		}
		fake.Seq, fake.Options = forged.seq, md5Option
		f.mustRun(t, forged.port, fake.Bytes())
		f.mustRun(t, 0, synAck.Bytes())
		f.mustRun(t, 1, ack.Bytes())
		f.mustRun(t, 0, c.segment().Bytes())
		data := c.back()
		data.Payload = []byte("data")
		f.mustRun(t, 1, data.Bytes())
		f.setGrant(t, 0, 0)
		f.setGrant(t, 1, rowGrant)
		s := signing(c.segment())
		out, err := f.run(0, s.Bytes(), 0, nil)
		if err != nil || bytes.Equal(out, s.Bytes()) {
			t.Errorf("after a forged signed %s, an ACK with the option leaves as it came: %v", forged.name, err)
		}
	}
}

// If the SYNs were not seen, the segments decide whether a connection is signed: the option counts while the
// other end signs too. It does not count for an end that recently sent a segment without it.
func TestFairQFrames_SignedAdopted(t *testing.T) {
	f := newFrameTable(t, frameConfig{})
	data := func(c *frameConn) *frames.Segment {
		s := c.back()
		s.Payload = []byte("data")
		return s
	}
	limited := func(name string, c *frameConn) {
		t.Helper()
		f.setGrant(t, 1, rowGrant)
		f.rewritten(t, name, signing(c.segment()), rowGrant, fairqPortCounts{}) // its scale is not known: 0
	}
	free := func(name string, c *frameConn) {
		t.Helper()
		f.setGrant(t, 1, rowGrant)
		f.same(t, name, signing(c.segment()).Bytes(), fairqPortCounts{Signed: 1})
	}

	liar := f.conn(frames.IP{}) // on the right; the left has no key
	f.mustRun(t, 1, data(liar).Bytes())
	f.mustRun(t, 0, signing(liar.segment()).Bytes())
	f.setGrant(t, 0, 0)
	limited("a receiver that alone sends the option", liar)
	f.mustRun(t, 1, signing(data(liar)).Bytes()) // by somebody else, in the sender's name
	limited("and has a friend forge one of the sender's segments", liar)
	f.mustRun(t, 1, data(liar).Bytes())
	for range 5 {
		f.sweep(t)
	}
	limited("after the sender was silent for five heartbeats", liar)

	honest := f.conn(frames.IP{})
	f.mustRun(t, 1, signing(data(honest)).Bytes())
	f.mustRun(t, 0, signing(honest.segment()).Bytes())
	free("both sign", honest)
	f.mustRun(t, 1, data(honest).Bytes()) // forged: the other end discards it
	limited("a segment without the option", honest)
	f.mustRun(t, 1, signing(data(honest)).Bytes())
	limited("and one with it", honest)
	f.sweep(t)
	f.mustRun(t, 1, signing(data(honest)).Bytes())
	limited("a heartbeat later", honest)
	f.sweep(t)
	f.mustRun(t, 1, signing(data(honest)).Bytes())
	free("two heartbeats later", honest)

	half := f.conn(frames.IP{}) // its SYN took another path
	synAck := half.segment()
	synAck.Flags, synAck.Seq, synAck.Options = frames.SYN|frames.ACK, 7000, md5Option
	f.mustRun(t, 0, synAck.Bytes())
	f.mustRun(t, 1, data(half).Bytes())
	limited("a SYN-ACK alone does not show that the other end signs", half)
}

// Flows whose segments are signed count as flows, in every mode.
func TestFairQFrames_SignedFlowsCount(t *testing.T) {
	for count := range uint8(2) {
		for mode := range Signed(2) {
			f := newFrameTable(t, frameConfig{count: count, signed: mode})
			for i := range 3 {
				c := f.conn(frames.IP{})
				c.syn, c.synAck = md5Option, md5Option
				c.openSigned(t, f.frameSwitch)
				data := signing(c.back())
				data.Payload = []byte("data")
				f.mustRun(t, 1, data.Bytes())
				if got := f.frameSwitch.port(t, 1).Law.Flows; got != uint32(i+1) {
					t.Errorf("count %d, mode %d: %d flows after %d signed connections", count, mode, got, i+1)
				}
			}
		}
	}
}

// openSigned is open with every segment signed.
func (c *frameConn) openSigned(t *testing.T, s *frameSwitch) {
	t.Helper()
	syn, synAck, ack := c.back(), c.segment(), c.back()
	syn.Flags, syn.Seq, syn.Ack, syn.Options = frames.SYN, 3000, 0, md5Option
	synAck.Flags, synAck.Seq, synAck.Options = frames.SYN|frames.ACK, 7000, md5Option
	ack.Options = md5Option
	s.mustRun(t, 1, syn.Bytes())
	s.mustRun(t, 0, synAck.Bytes())
	s.mustRun(t, 1, ack.Bytes())
	s.setGrant(t, 0, 0)
	s.setGrant(t, 1, rowGrant)
}

// signed: limit. Data of a signed flow beyond the window that its port grants is dropped, at the port that it
// leaves by. There is never more data in flight, and data that is sent again passes.
func TestFairQFrames_SignedLimit(t *testing.T) {
	f := newFrameTable(t, frameConfig{signed: SignedLimit})
	const segment = 1000
	c := f.conn(frames.IP{})
	c.openSigned(t, f.frameSwitch)
	sends := func(name string, from, bytes int, want bool) {
		t.Helper()
		s := signing(c.back())
		s.Seq, s.Payload = uint32(3001+from), make([]byte, bytes)
		f.counted(t, 1)
		passed := f.sends(t, 1, s.Bytes())
		got := f.counted(t, 1)
		if passed != want || (got.Dropped == 1) == want || got.Seen != 1 {
			t.Errorf("%s: passed %t, counted %+v", name, passed, got)
		}
	}
	const full = rowGrant / segment * segment // 25600: 25 segments fit
	for at := 0; at < full; at += segment {
		sends("within the window", at, segment, true)
	}
	sends("beyond it", full, segment, false)
	sends("what still fits", full, rowGrant-full, true)
	sends("the same again", full, rowGrant-full, true)
	sends("a byte more", full, rowGrant-full+1, false)
	sends("from the beginning", 0, segment, true)
	ack := func(bytes int) {
		s := signing(c.segment())
		s.Ack = uint32(3001 + bytes)
		f.same(t, "acknowledgement", s.Bytes(), fairqPortCounts{Signed: 1})
	}
	ack(3 * segment)
	sends("what an acknowledgement makes room for", full, 3*segment, true)
	sends("but not more", full+3*segment, segment, false)
	ack(900_000) // of more than passed here
	sends("acknowledged before it was sent", full+3*segment, segment, true)
	f.setGrant(t, 1, 0)
	sends("nothing is granted", full+100*segment, segment, true)

	f.setGrant(t, 1, 100) // below a segment: one may always be in flight
	ack(full + 101*segment)
	sends("one segment", full+101*segment, 1460, true)
	sends("a second one", full+101*segment+1460, 1460, false)
	for range 5 { // no acknowledgement passed here for a second: they take another path
		f.sweep(t)
	}
	sends("without acknowledgements", full+101*segment+1460, 1460, true)

	bare := f.conn(frames.IP{})
	bare.open(t, f.frameSwitch)
	s := signing(bare.back())
	s.Seq, s.Payload = s.Seq+1_000_000, make([]byte, segment)
	if !f.sends(t, 1, s.Bytes()) {
		t.Error("data of a flow that is not signed was dropped")
	}
}

// signed: drop. Signed segments do not pass, whoever sends them, except those of connections that are not
// signed.
func TestFairQFrames_SignedDrop(t *testing.T) {
	for _, mode := range []Mode{EnforceAll, EnforceNone} {
		f := newFrameTable(t, frameConfig{signed: SignedDrop, law: fairqPortConfig{Mode: uint32(mode), PipeBytes: 1}})
		drops := func(name string, port int, s *frames.Segment, want bool) {
			t.Helper()
			want = want && mode == EnforceAll // a port that observes drops nothing
			f.counted(t, port)
			passed := f.sends(t, port, s.Bytes())
			if got := f.counted(t, port); passed == want || (got.Dropped == 1) != want || got.Seen != 1 {
				t.Errorf("mode %d, %s: passed %t, counted %+v", mode, name, passed, got)
			}
		}
		c := f.conn(frames.IP{})
		syn := signing(c.back())
		syn.Flags, syn.Seq, syn.Ack = frames.SYN, 3000, 0
		drops("SYN", 1, syn, true)
		old := f.conn(frames.IP{})
		drops("data of an older connection", 1, signing(old.back()), true)
		drops("its acknowledgement", 0, signing(old.segment()), true)
		drops("its reset", 1, signing(&frames.Segment{
			Link: old.link, IP: frames.IP{From: leftIPv4, To: rightIPv4}, FromPort: old.port, ToPort: 80, Flags: frames.RST,
		}), true)
		bare := f.conn(frames.IP{})
		bare.open(t, f.frameSwitch)
		drops("without signed SYNs", 0, signing(bare.segment()), false)
		drops("without an option", 0, bare.segment(), false)
		udp := frames.Packet(c.link, frames.IP{From: leftIPv4, To: rightIPv4}, frames.UDP, make([]byte, 60))
		if !f.sends(t, 0, udp) {
			t.Error("UDP was dropped")
		}
	}
}

// Without user space nothing is dropped.
func TestFairQFrames_SignedDropFailsOpen(t *testing.T) {
	f := newFrameTable(t, frameConfig{signed: SignedDrop})
	c := f.conn(frames.IP{})
	if f.sends(t, 1, signing(c.back()).Bytes()) {
		t.Error("a signed segment passed")
	}
	if err := f.Controls.Put(uint32(0), fairqControl{Schema: schemaVersion, HeartbeatNs: 1, LeaseNs: 1}); err != nil {
		t.Fatal(err)
	}
	if !f.sends(t, 1, signing(c.back()).Bytes()) {
		t.Error("without a heartbeat a signed segment was dropped")
	}
}

// Signed segments are counted by their sources, of which the table has a fixed number.
func TestFairQFrames_SignedSources(t *testing.T) {
	f := newFrameTable(t, frameConfig{})
	c := f.conn(frames.IP{})
	c.openSigned(t, f.frameSwitch)
	for range 3 {
		f.mustRun(t, 0, signing(c.segment()).Bytes())
	}
	six := f.conn(frames.IP{From: rightIPv6, To: leftIPv6})
	six.link.Tags = []frames.Tag{{TPID: frames.TypeVLAN, TCI: 7}}
	six.openSigned(t, f.frameSwitch)
	bare := f.conn(frames.IP{From: netip.MustParseAddr("10.0.0.9"), To: leftIPv4})
	bare.open(t, f.frameSwitch)
	f.mustRun(t, 0, signing(bare.segment()).Bytes())
	got, err := f.signedSources(-1)
	if err != nil {
		t.Fatal(err)
	}
	// In handshakes the SYN belongs to no connection yet; SYN-ACK and ACK do.
	want := []SignedSource{{Addr: rightIPv4, Segments: 4}, {Addr: leftIPv4, Segments: 1}, {Addr: leftIPv6, VLANs: 7, Segments: 1}, {Addr: rightIPv6, VLANs: 7, Segments: 1}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("sources %v, want %v", got, want)
	}
	if top, err := f.signedSources(1); err != nil || len(top) != 1 || top[0] != want[0] {
		t.Errorf("the first: %v, %v", top, err)
	}
	for i := range 4 * MaxSignedSources {
		forged := signing(c.segment())
		forged.IP = frames.IP{From: netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}), To: leftIPv4}
		f.mustRun(t, 0, forged.Bytes()) // of nobody that was heard
		answer := signing(c.back())
		answer.IP = frames.IP{From: leftIPv4, To: forged.From}
		f.mustRun(t, 1, answer.Bytes())
		f.mustRun(t, 0, forged.Bytes())
	}
	if got, err = f.signedSources(-1); err != nil || len(got) > MaxSignedSources || len(got) < MaxSignedSources/2 {
		t.Errorf("%d sources after a flood, at most %d: %v", len(got), MaxSignedSources, err)
	}
}
