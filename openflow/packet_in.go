package openflow

// PacketInReason is why a packet was sent to the controller (ofp_packet_in_reason, specification 7.4.1).
type PacketInReason uint8

// The reasons.
const (
	PacketInNoMatch PacketInReason = iota
	PacketInAction
	PacketInInvalidTTL
)

var packetInReasons = [...]string{"NO_MATCH", "ACTION", "INVALID_TTL"}

// String returns the specification's name.
func (r PacketInReason) String() string { return nameOf(packetInReasons[:], uint64(r)) }

// MarshalJSON returns the name as a string, or the number.
func (r PacketInReason) MarshalJSON() ([]byte, error) { return nameJSON(r.String()), nil }

// PacketIn brings a packet to the controller (specification 7.4.1). Decoding into a used one allocates nothing.
type PacketIn struct {
	BufferID uint32         `json:"buffer_id"` // buffer of the switch that has the packet, or NoBuffer
	TotalLen uint16         `json:"total_len"` // bytes of the frame; Data may be only its beginning
	Reason   PacketInReason `json:"reason"`
	TableID  TableID        `json:"table_id"` // where the flow entry was
	Cookie   uint64         `json:"cookie"`   // of that entry
	Match    Match          `json:"match"`    // at least in_port
	Data     HexBytes       `json:"data"`     // the Ethernet frame
}

// MessageType returns TypePacketIn.
func (*PacketIn) MessageType() Type { return TypePacketIn }

func (m *PacketIn) String() string { return text(m) }

// AppendBody appends all fields.
func (m *PacketIn) AppendBody(b []byte) ([]byte, error) {
	b = be.AppendUint32(b, m.BufferID)
	b = be.AppendUint16(b, m.TotalLen)
	b = append(b, byte(m.Reason), byte(m.TableID))
	b = be.AppendUint64(b, m.Cookie)
	b, err := m.Match.append(b)
	if err != nil {
		return b, err
	}
	return append(appendZeros(b, 2), m.Data...), nil
}

// DecodeBody reads all fields.
func (m *PacketIn) DecodeBody(b []byte) error {
	c := newCursor(TypePacketIn, b)
	m.BufferID = c.u32("buffer_id")
	m.TotalLen = c.u16("total_len")
	m.Reason = PacketInReason(c.u8("reason"))
	m.TableID = TableID(c.u8("table_id"))
	m.Cookie = c.u64("cookie")
	c.match(&m.Match)
	c.pad(2)
	m.Data = c.rest()
	return c.err
}
