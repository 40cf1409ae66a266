package openflow

import (
	"bytes"
	"fmt"
	"net/netip"
	"strconv"
)

// FieldID identifies a field of packets: class, number within it, and the experimenter for ClassExperimenter (specification
// 7.2.3.3). The known fields are constants, see FieldInPort.
type FieldID uint64

// The classes of fields.
const (
	ClassNXM0         = 0x0000 // Open vSwitch's, before OpenFlow 1.2
	ClassNXM1         = 0x0001
	ClassBasic        = 0x8000 // OpenFlow's
	ClassExperimenter = 0xffff
)

// ExperimenterONF is the Open Networking Foundation's experimenter number.
const ExperimenterONF = 0x4f4e4600

// NewFieldID makes an id. number is 0 to 127; experimenter counts in ClassExperimenter only.
func NewFieldID(class uint16, number uint8, experimenter uint32) FieldID {
	id := FieldID(class)<<8 | FieldID(number&0x7f)
	if class == ClassExperimenter {
		id |= FieldID(experimenter) << 24
	}
	return id
}

// Class returns the field's class.
func (id FieldID) Class() uint16 { return uint16(id >> 8) }

// Number returns the field's number in its class.
func (id FieldID) Number() uint8 { return uint8(id) }

// Experimenter returns the experimenter of a field in ClassExperimenter.
func (id FieldID) Experimenter() uint32 { return uint32(id >> 24) }

// String returns the specification's name in lower case, such as eth_dst; class and number of an unknown field.
func (id FieldID) String() string {
	if info := fieldInfoOf(id); info != nil {
		return info.name
	}
	if id.Class() == ClassExperimenter {
		return fmt.Sprintf("oxm_%#x_%#x_%d", id.Class(), id.Experimenter(), id.Number())
	}
	return fmt.Sprintf("oxm_%#x_%d", id.Class(), id.Number())
}

const shortField = 16 // bytes of the longest known field: an IPv6 address

// Field is one field with a value, and a mask if HasMask is true (an OXM TLV, specification 7.2.3.2). [NewField] or a constructor
// such as [InPort] makes it. Equal fields are equal under ==.
type Field struct {
	ID      FieldID
	HasMask bool
	size    uint8 // of the value, in bytes
	value   [shortField]byte
	mask    [shortField]byte
	long    string // value and mask, if size is over 16
}

// NewField makes a field of any kind. mask is nil, or as long as value. The error is a length that does not fit, or differs from
// that of a known field.
func NewField(id FieldID, value, mask []byte) (Field, error) {
	f := Field{ID: id, HasMask: mask != nil}
	info := fieldInfoOf(id)
	if limit := f.room(); len(value) > limit || (mask != nil && len(mask) != len(value)) || (info != nil && len(value) != int(info.bytes)) {
		return f, &EncodeError{Message: "match", Field: id.String(), Err: ErrLength, Value: int64(len(value))}
	}
	f.set(value, mask)
	return f, nil
}

// room is the longest value that the length's byte allows.
func (f *Field) room() int {
	n := 255
	if f.ID.Class() == ClassExperimenter {
		n -= 4
	}
	if f.HasMask {
		n /= 2
	}
	return n
}

func (f *Field) set(value, mask []byte) {
	f.size = uint8(len(value))
	if len(value) <= shortField {
		copy(f.value[:], value)
		copy(f.mask[:], mask)
		return
	}
	f.long = string(value) + string(mask)
}

// Value returns the field's value, in network order.
func (f *Field) Value() []byte {
	if f.size > shortField {
		return []byte(f.long[:f.size])
	}
	return f.value[:f.size]
}

// Mask returns the mask; all ones if the field has none.
func (f *Field) Mask() []byte {
	switch {
	case !f.HasMask:
		return bytes.Repeat([]byte{0xff}, int(f.size))
	case f.size > shortField:
		return []byte(f.long[f.size:])
	}
	return f.mask[:f.size]
}

// Uint returns the value of a field of at most 8 bytes as a number; of a longer one its last 8 bytes.
func (f *Field) Uint() uint64 { return bigUint(f.Value()) }

// UintMask returns the mask likewise.
func (f *Field) UintMask() uint64 { return bigUint(f.Mask()) }

// MAC returns the value of an Ethernet address.
func (f *Field) MAC() MAC { return MAC(f.value[:6]) }

// Addr returns the value of an IPv4 or IPv6 address; the zero Addr for a field of another length.
func (f *Field) Addr() netip.Addr {
	a, _ := netip.AddrFromSlice(f.Value())
	return a
}

func bigUint(b []byte) uint64 {
	var v uint64
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}

// wireLen returns the encoded length of the field in bytes, with its header.
func (f *Field) wireLen() int {
	n := 4 + int(f.size)
	if f.HasMask {
		n += int(f.size)
	}
	if f.ID.Class() == ClassExperimenter {
		n += 4
	}
	return n
}

func (f *Field) append(b []byte) []byte {
	b = be.AppendUint16(b, f.ID.Class())
	hasMask := byte(0)
	if f.HasMask {
		hasMask = 1
	}
	b = append(b, f.ID.Number()<<1|hasMask, byte(f.wireLen()-4))
	if f.ID.Class() == ClassExperimenter {
		b = be.AppendUint32(b, f.ID.Experimenter())
	}
	if f.size > shortField {
		return append(b, f.long...)
	}
	b = append(b, f.value[:f.size]...)
	if f.HasMask {
		b = append(b, f.mask[:f.size]...)
	}
	return b
}

// field reads one OXM TLV.
func (c *cursor) field(f *Field) {
	at := c.at()
	head := c.take("oxm_header", 4)
	if head == nil {
		return
	}
	n := int(head[3])
	*f = Field{HasMask: head[2]&1 != 0}
	class, experimenter := be.Uint16(head), uint32(0)
	if n > len(c.b) {
		c.fail("oxm_length", at+3, ErrTruncated, n)
		return
	}
	if class == ClassExperimenter {
		if n < 4 {
			c.fail("oxm_length", at+3, ErrLength, n)
			return
		}
		experimenter = c.u32("oxm_experimenter")
		n -= 4
	}
	f.ID = NewFieldID(class, head[2]>>1, experimenter)
	size := n
	if f.HasMask {
		size /= 2
	}
	info := fieldInfoOf(f.ID)
	if (f.HasMask && n%2 != 0) || (info != nil && size != int(info.bytes)) {
		c.fail("oxm_length", at+3, ErrLength, int(head[3]))
		return
	}
	b := c.take("oxm_value", n)
	f.set(b[:size], b[size:])
}

// String returns name=value or name=value/mask.
func (f Field) String() string {
	s := f.ID.String() + "=" + f.valueText(f.Value())
	if f.HasMask {
		s += "/" + f.valueText(f.Mask())
	}
	return s
}

func (f *Field) valueText(v []byte) string {
	info := fieldInfoOf(f.ID)
	if info == nil {
		return "0x" + HexBytes(v).String()
	}
	switch info.shape {
	case shapeMAC:
		return MAC(v).String()
	case shapeAddr:
		a, _ := netip.AddrFromSlice(v)
		return a.String()
	case shapePort:
		return PortNo(be.Uint32(v)).String()
	case shapeHex:
		return "0x" + strconv.FormatUint(bigUint(v), 16)
	}
	return strconv.FormatUint(bigUint(v), 10)
}

// appendJSON appends the value: numbers as numbers, addresses as strings, unknown fields in hexadecimal.
func (f *Field) appendJSON(b, v []byte) []byte {
	if info := fieldInfoOf(f.ID); info != nil && info.shape == shapeHex {
		return strconv.AppendUint(b, bigUint(v), 10)
	}
	s := f.valueText(v)
	if info := fieldInfoOf(f.ID); info != nil && (info.shape == shapeNumber || info.shape == shapePort) {
		return append(b, nameJSON(s)...)
	}
	return strconv.AppendQuote(b, s)
}

// member appends the field as a member of a JSON object: "name":value or "name":{"value":...,"mask":...}.
func (f *Field) member(b []byte) []byte {
	b = append(strconv.AppendQuote(b, f.ID.String()), ':')
	if !f.HasMask {
		return f.appendJSON(b, f.Value())
	}
	b = f.appendJSON(append(b, `{"value":`...), f.Value())
	b = f.appendJSON(append(b, `,"mask":`...), f.Mask())
	return append(b, '}')
}

// MarshalJSON returns an object with the field as its only member.
func (f Field) MarshalJSON() ([]byte, error) {
	return append(f.member([]byte{'{'}), '}'), nil
}
