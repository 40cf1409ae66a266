package openflow

// PacketOut makes the switch send a packet (specification 7.3.7).
type PacketOut struct {
	BufferID uint32   `json:"buffer_id"` // a packet that the switch keeps; NoBuffer: the one in Data
	InPort   PortNo   `json:"in_port"`   // ingress port for matching; PortController: none
	Actions  Actions  `json:"actions"`
	Data     HexBytes `json:"data"` // the Ethernet frame
}

// MessageType returns TypePacketOut.
func (*PacketOut) MessageType() Type { return TypePacketOut }

func (m *PacketOut) String() string { return text(m) }

// AppendBody appends all fields.
func (m *PacketOut) AppendBody(b []byte) ([]byte, error) {
	b = be.AppendUint32(b, m.BufferID)
	b = be.AppendUint32(b, uint32(m.InPort))
	lengthAt := len(b)
	b = appendZeros(b, 8)
	start := len(b)
	b, err := m.Actions.append(b)
	if err != nil {
		return b, err
	}
	if b, err = putLength(b, start, lengthAt, "PACKET_OUT actions"); err != nil {
		return b, err
	}
	return append(b, m.Data...), nil
}

// DecodeBody reads all fields.
func (m *PacketOut) DecodeBody(b []byte) error {
	c := newCursor(TypePacketOut, b)
	m.BufferID = c.u32("buffer_id")
	m.InPort = PortNo(c.u32("in_port"))
	n := int(c.u16("actions_len"))
	c.pad(6)
	a := c.sub("actions", n)
	m.Actions = a.actions(m.Actions)
	c.join(&a)
	m.Data = c.rest()
	return c.err
}
