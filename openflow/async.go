package openflow

// AsyncMasks selects the messages that a switch sends without a request: bit n of a mask is reason n of that message. Of each
// pair the first is for MASTER and EQUAL, the second for SLAVE (specification 7.3.10).
type AsyncMasks struct {
	PacketIn    [2]uint32 `json:"packet_in_mask"`
	PortStatus  [2]uint32 `json:"port_status_mask"`
	FlowRemoved [2]uint32 `json:"flow_removed_mask"`
}

// SetAsync sets them for this connection.
type SetAsync struct {
	Masks AsyncMasks `json:"masks"`
}

// GetAsyncReply gives them.
type GetAsyncReply struct {
	Masks AsyncMasks `json:"masks"`
}

func (a *AsyncMasks) append(b []byte) []byte {
	for _, pair := range [...]*[2]uint32{&a.PacketIn, &a.PortStatus, &a.FlowRemoved} {
		b = be.AppendUint32(be.AppendUint32(b, pair[0]), pair[1])
	}
	return b
}

func (a *AsyncMasks) decode(t Type, b []byte) error {
	c := newCursor(t, b)
	a.PacketIn = [2]uint32{c.u32("packet_in_mask"), c.u32("packet_in_mask")}
	a.PortStatus = [2]uint32{c.u32("port_status_mask"), c.u32("port_status_mask")}
	a.FlowRemoved = [2]uint32{c.u32("flow_removed_mask"), c.u32("flow_removed_mask")}
	return c.done()
}

// MessageType returns TypeSetAsync.
func (*SetAsync) MessageType() Type { return TypeSetAsync }

// AppendBody appends the 24 bytes.
func (m *SetAsync) AppendBody(b []byte) ([]byte, error) { return m.Masks.append(b), nil }

// DecodeBody reads the 24 bytes.
func (m *SetAsync) DecodeBody(b []byte) error { return m.Masks.decode(TypeSetAsync, b) }

func (m *SetAsync) String() string { return text(m) }

// MessageType returns TypeGetAsyncReply.
func (*GetAsyncReply) MessageType() Type { return TypeGetAsyncReply }

// AppendBody appends the 24 bytes.
func (m *GetAsyncReply) AppendBody(b []byte) ([]byte, error) { return m.Masks.append(b), nil }

// DecodeBody reads the 24 bytes.
func (m *GetAsyncReply) DecodeBody(b []byte) error { return m.Masks.decode(TypeGetAsyncReply, b) }

func (m *GetAsyncReply) String() string { return text(m) }
