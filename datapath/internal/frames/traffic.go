package frames

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
)

// Traffic is what many TCP connections send between hosts on the left and on the right of a switch: handshakes,
// data, acknowledgements and ends. It has both IP versions, with and without tags, options and extension
// headers.
type Traffic struct {
	r     *rand.Rand
	conns []connection
	buf   []byte
}

// Sent is a frame of Traffic. Data is valid until the next one.
type Sent struct {
	Data        []byte
	LeftToRight bool
}

// connection is one connection of Traffic. End 0 sends to the right, end 1 to the left.
type connection struct {
	ends  [2]Segment
	style style
	step  step
	left  int // steps of data that it will still make
}

// step is the next action of a connection.
type step int

const (
	stepSYN step = iota
	stepSYNACK
	stepACK
	stepData
	stepEnd
)

// style is how a connection's ends write their segments.
type style struct {
	stamps, sack, signed bool
	padded               bool
}

// NewTraffic begins this many connections. A new one follows each that ends.
func NewTraffic(r *rand.Rand, connections int) *Traffic {
	t := &Traffic{r: r, conns: make([]connection, connections), buf: make([]byte, 0, 4096)}
	for i := range t.conns {
		t.begin(&t.conns[i])
	}
	return t
}

// begin makes c another connection.
func (t *Traffic) begin(c *connection) {
	r := t.r
	*c = connection{left: 1 + r.IntN(200)}
	c.style = style{stamps: r.IntN(2) == 0, sack: r.IntN(4) == 0, signed: r.IntN(40) == 0, padded: r.IntN(8) == 0}
	s := &c.ends[0]
	s.Dst, s.Src = [6]byte{2, 0, 0, 0, 1, 2}, [6]byte{2, 0, 0, 0, 1, 1}
	for range []int{0, 0, 0, 0, 1, 1, 2}[r.IntN(7)] {
		s.Tags = append(s.Tags, Tag{[]uint16{TypeVLAN, TypeQinQ}[r.IntN(2)], uint16(r.IntN(64) * 1111)})
	}
	if r.IntN(3) > 0 {
		s.From, s.To = netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(50))}), netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(3)), byte(r.IntN(50))})
		s.IP.Options = make([]byte, []int{0, 0, 0, 4, 12, 40}[r.IntN(6)])
	} else {
		s.From, s.To = address6(r), address6(r)
		for range []int{0, 0, 0, 1, 2, 6}[r.IntN(6)] {
			s.Extensions = append(s.Extensions, Extension{[]byte{HopByHop, Routing, ToHost}[r.IntN(3)], make([]byte, r.IntN(40))})
		}
	}
	s.TOS = byte(r.Uint32())
	s.FromPort, s.ToPort = uint16(1024+r.IntN(60000)), []uint16{80, 443, 5001, 22}[r.IntN(4)]
	s.Seq = r.Uint32()
	c.ends[1] = *s
	o := &c.ends[1]
	o.Dst, o.Src, o.From, o.To, o.FromPort, o.ToPort = s.Src, s.Dst, s.To, s.From, s.ToPort, s.FromPort
	o.Seq = r.Uint32()
	if r.IntN(5) == 0 { // seen in mid-stream
		c.step, s.Ack, o.Ack = stepData, o.Seq, s.Seq
	}
}

func address6(r *rand.Rand) netip.Addr {
	a := [16]byte{0: 0xfd, 15: byte(r.IntN(50))}
	if r.IntN(8) == 0 {
		binary.BigEndian.PutUint64(a[r.IntN(8):], r.Uint64())
	}
	return netip.AddrFrom16(a)
}

// Next returns the next frame of some connection.
func (t *Traffic) Next() Sent {
	c := &t.conns[t.r.IntN(len(t.conns))]
	side := t.segment(c)
	t.buf = c.ends[side].Append(t.buf[:0])
	if c.step > stepEnd {
		t.begin(c)
	} else if t.r.IntN(64) != 0 { // sometimes the same segment is sent again
		c.ends[side].Seq += c.ends[side].occupies()
		c.ends[1-side].Ack = c.ends[side].Seq
		if c.step < stepData {
			c.step++
		}
	}
	return Sent{t.buf, side == 0}
}

// occupies returns how much of the sequence space a segment takes.
func (s *Segment) occupies() uint32 {
	n := uint32(len(s.Payload))
	if s.Flags&SYN != 0 {
		n++
	}
	if s.Flags&FIN != 0 {
		n++
	}
	return n
}

// segment prepares the connection's next segment and returns the end that sends it.
func (t *Traffic) segment(c *connection) int {
	r := t.r
	side := []int{0, 1, 0, r.IntN(2), r.IntN(2)}[c.step]
	s := &c.ends[side]
	s.Flags, s.Reserved, s.Urgent, s.Padding = ACK, 0, 0, 0
	s.Payload, s.Options = s.Payload[:0], s.Options[:0]
	s.Window = uint16(r.Uint32() >> r.IntN(17))
	switch c.step {
	case stepSYN:
		s.Flags, s.Ack = SYN, 0
		t.synOptions(c, s)
	case stepSYNACK:
		s.Flags |= SYN
		t.synOptions(c, s)
	case stepACK:
		t.options(c, s)
	case stepData:
		t.data(c, s)
	case stepEnd:
		t.options(c, s)
		s.Flags |= []byte{FIN, FIN, RST}[r.IntN(3)]
		if r.IntN(2) == 0 || s.Flags&RST != 0 {
			c.step++
		}
	}
	if n := 46 - 20; c.style.padded && len(s.Payload)+len(s.Options) < n {
		s.Padding = r.IntN(n)
	}
	return side
}

// data is what an open connection sends: data, acknowledgements, and rare segments.
func (t *Traffic) data(c *connection, s *Segment) {
	r := t.r
	t.options(c, s)
	switch n := r.IntN(100); {
	case n < 40: // an acknowledgement
	case n < 85:
		s.Payload, s.Flags = fill(s.Payload, r.IntN(200)), s.Flags|PSH
	case n < 90:
		s.Payload = fill(s.Payload, r.IntN(1400))
	case n < 92:
		s.Flags, s.Urgent, s.Payload = s.Flags|URG, uint16(r.Uint32()), fill(s.Payload, 3)
	case n < 94:
		s.Window = 0
	case n < 96:
		s.Reserved, s.Flags = byte(r.IntN(16)), s.Flags|byte(r.IntN(4))<<6
	case n < 98:
		s.Seq-- // keep-alive
	default:
		s.Flags &^= ACK
	}
	if c.left--; c.left == 0 {
		c.step = stepEnd
	}
}

func fill(b []byte, n int) []byte {
	for i := range n {
		b = append(b, byte(i*7))
	}
	return b
}

func (t *Traffic) synOptions(c *connection, s *Segment) {
	r := t.r
	if r.IntN(8) > 0 {
		s.Options = append(s.Options, OptionMSS, 4, byte(r.IntN(24)), byte(r.Uint32()))
	}
	if r.IntN(4) > 0 {
		s.Options = append(s.Options, OptionNop, OptionScale, 3, byte(r.IntN(16)))
	}
	t.options(c, s)
}

// options returns the options of every segment of the connection. Each is a multiple of 4 bytes.
func (t *Traffic) options(c *connection, s *Segment) {
	r := t.r
	if c.style.signed {
		s.Options = append(append(s.Options, OptionNop, OptionNop, OptionMD5, 18), make([]byte, 16)...)
		return
	}
	if c.style.stamps {
		s.Options = append(s.Options, OptionNop, OptionNop, OptionTimestamps, 10)
		s.Options = binary.BigEndian.AppendUint64(s.Options, r.Uint64())
	}
	if c.style.sack && s.Flags&SYN == 0 {
		blocks := 1 + r.IntN(3)
		s.Options = append(s.Options, OptionNop, OptionNop, OptionSACK, byte(2+8*blocks))
		for range blocks {
			s.Options = binary.BigEndian.AppendUint64(s.Options, r.Uint64())
		}
	}
}
