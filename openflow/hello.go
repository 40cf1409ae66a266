package openflow

import (
	"encoding/json"
	"slices"
)

const helloVersionBitmap = 1 // OFPHET_VERSIONBITMAP

// Hello is the first message of either side (specification 7.5.1).
type Hello struct {
	// Versions lists the wire versions in the sender's version bitmap, in rising order, at most 255. Empty without a bitmap:
	// then the header's version counts.
	Versions []uint8 `json:"versions"`
}

// MessageType returns TypeHello.
func (*Hello) MessageType() Type { return TypeHello }

func (m *Hello) String() string { return text(m) }

// MarshalJSON returns the versions as numbers; encoding/json would make a string of bytes.
func (m *Hello) MarshalJSON() ([]byte, error) {
	versions := make([]int, len(m.Versions))
	for i, v := range m.Versions {
		versions[i] = int(v)
	}
	return json.Marshal(map[string][]int{"versions": versions})
}

// AppendBody appends the bitmap, if versions are given.
func (m *Hello) AppendBody(b []byte) ([]byte, error) {
	if len(m.Versions) == 0 {
		return b, nil
	}
	var bitmap [8]uint32
	words := 0
	for _, v := range m.Versions {
		bitmap[v/32] |= 1 << (v % 32)
		words = max(words, int(v/32)+1)
	}
	start := len(b)
	b = be.AppendUint16(b, helloVersionBitmap)
	b = be.AppendUint16(b, uint16(4+4*words))
	for _, w := range bitmap[:words] {
		b = be.AppendUint32(b, w)
	}
	return appendPad(b, start), nil
}

// DecodeBody reads the bitmap. It skips other elements, as the specification requires.
func (m *Hello) DecodeBody(b []byte) error {
	c := newCursor(TypeHello, b)
	m.Versions = m.Versions[:0]
	for seen := false; c.more(); {
		typ, e := c.element("elements", 4, 1)
		n := 4 + len(e.b)
		for base := 0; c.err == nil && typ == helloVersionBitmap && len(e.b) >= 4; base += 32 {
			word := e.u32("bitmap")
			for bit := 0; bit < 32 && base+bit <= 255; bit++ {
				if word&(1<<bit) != 0 && !seen {
					m.Versions = append(m.Versions, uint8(base+bit))
				}
			}
		}
		seen = seen || typ == helloVersionBitmap
		if pad := (8 - n%8) % 8; c.err == nil && c.more() { // the last one's padding may be missing
			c.pad(min(pad, len(c.b)))
		}
	}
	return c.done()
}

// Has reports whether the sender speaks that version, by the bitmap or, without one, by the version of the header: the
// lower of two such versions is spoken (specification 6.3.1).
func (m *Hello) Has(version, header uint8) bool {
	if len(m.Versions) == 0 {
		return version <= header
	}
	return slices.Contains(m.Versions, version)
}
