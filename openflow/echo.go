package openflow

// EchoRequest asks the other side for an EchoReply with the same data (specification 7.5.2).
type EchoRequest struct {
	Data HexBytes `json:"data"`
}

// EchoReply answers an EchoRequest (specification 7.5.3).
type EchoReply struct {
	Data HexBytes `json:"data"`
}

// MessageType returns TypeEchoRequest.
func (*EchoRequest) MessageType() Type { return TypeEchoRequest }

// AppendBody appends the data.
func (m *EchoRequest) AppendBody(b []byte) ([]byte, error) { return append(b, m.Data...), nil }

// DecodeBody keeps b.
func (m *EchoRequest) DecodeBody(b []byte) error {
	m.Data = b
	return nil
}

func (m *EchoRequest) String() string { return text(m) }

// MessageType returns TypeEchoReply.
func (*EchoReply) MessageType() Type { return TypeEchoReply }

// AppendBody appends the data.
func (m *EchoReply) AppendBody(b []byte) ([]byte, error) { return append(b, m.Data...), nil }

// DecodeBody keeps b.
func (m *EchoReply) DecodeBody(b []byte) error {
	m.Data = b
	return nil
}

func (m *EchoReply) String() string { return text(m) }
