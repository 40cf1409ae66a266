package openflow

import (
	"net/netip"
	"strings"
)

const matchOXM = 1 // OFPMT_OXM

// maxFields limits the search for duplicate fields. OpenFlow has 40 fields, Open vSwitch some 150.
const maxFields = 256

// Match selects the packets with all these fields (ofp_match, specification 7.2.3). An empty one selects all packets. In a
// packet-in it has the metadata of the packet.
type Match []Field

// Get returns the field with that id.
func (m Match) Get(id FieldID) (*Field, bool) {
	for i := range m {
		if m[i].ID == id {
			return &m[i], true
		}
	}
	return nil, false
}

// Uint returns a field's value as a number.
func (m Match) Uint(id FieldID) (uint64, bool) {
	if f, ok := m.Get(id); ok {
		return f.Uint(), true
	}
	return 0, false
}

// Addr returns a field's value as an IP address.
func (m Match) Addr(id FieldID) (netip.Addr, bool) {
	if f, ok := m.Get(id); ok {
		return f.Addr(), true
	}
	return netip.Addr{}, false
}

// InPort returns the port that the packet came in by.
func (m Match) InPort() (PortNo, bool) {
	v, ok := m.Uint(FieldInPort)
	return PortNo(v), ok
}

// TCPFlags returns value and mask of the TCP flags, from any of the three fields that carry them.
func (m Match) TCPFlags() (value, mask uint16, ok bool) {
	for _, id := range [...]FieldID{FieldTCPFlags, FieldTCPFlagsNXM, FieldTCPFlags15} {
		if f, ok := m.Get(id); ok {
			return uint16(f.Uint()), uint16(f.UintMask()), true
		}
	}
	return 0, 0, false
}

func (m Match) append(b []byte) ([]byte, error) {
	start := len(b)
	b = be.AppendUint16(b, matchOXM)
	b = be.AppendUint16(b, 0)
	for i := range m {
		b = m[i].append(b)
	}
	b, err := putLength(b, start, start+2, "match")
	if err != nil {
		return b, err
	}
	return appendPad(b, start), nil
}

// match reads an ofp_match with its padding. The length does not count the padding, which is always there.
func (c *cursor) match(m *Match) {
	*m = (*m)[:0]
	at := c.at()
	typ := c.u16("match.type")
	n := int(c.u16("match.length"))
	switch {
	case c.err != nil:
		return
	case typ != matchOXM:
		c.fail("match.type", at, ErrValue, int(typ))
		return
	case n < 4:
		c.fail("match.length", at+2, ErrLength, n)
		return
	case (n+7)&^7-4 > len(c.b):
		c.fail("match.length", at+2, ErrTruncated, n)
		return
	}
	fields := c.sub("match", n-4)
	var basic uint64 // the numbers of OpenFlow's own fields that were read already
	for fields.more() {
		var f Field
		at := fields.at()
		fields.field(&f)
		if fields.err != nil {
			break
		}
		if len(*m) == maxFields {
			fields.fail("match", at, ErrTooLong, len(*m)+1)
			break
		}
		if seen(*m, &f, &basic) {
			fields.fail("match."+f.ID.String(), at, ErrDuplicate, int(f.ID.Number()))
			break
		}
		*m = append(*m, f)
	}
	c.join(&fields)
	c.pad((8 - n%8) % 8)
}

// seen reports whether m has the field already: no field may come twice (specification 7.2.3.6).
func seen(m Match, f *Field, basic *uint64) bool {
	if f.ID.Class() == ClassBasic && f.ID.Number() < 64 {
		bit := uint64(1) << f.ID.Number()
		was := *basic&bit != 0
		*basic |= bit
		return was
	}
	_, ok := m.Get(f.ID)
	return ok
}

// String returns the fields, with commas; "any" for none.
func (m Match) String() string {
	if len(m) == 0 {
		return "any"
	}
	parts := make([]string, len(m))
	for i := range m {
		parts[i] = m[i].String()
	}
	return strings.Join(parts, ",")
}

// MarshalJSON returns one object: a member per field, its value or {"value":...,"mask":...}.
func (m Match) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i := range m {
		if i > 0 {
			b = append(b, ',')
		}
		b = m[i].member(b)
	}
	return append(b, '}'), nil
}
