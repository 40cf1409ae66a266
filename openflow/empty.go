package openflow

// Messages without a body. One with a body is refused, as the specification's BAD_LEN.

// FeaturesRequest asks for a switch's identity and features (specification 7.3.1).
type FeaturesRequest struct{}

// BarrierRequest asks for a BarrierReply after all earlier messages are carried out (specification 7.3.8).
type BarrierRequest struct{}

// BarrierReply answers a BarrierRequest.
type BarrierReply struct{}

// GetConfigRequest asks for the switch's configuration (specification 7.3.2).
type GetConfigRequest struct{}

// GetAsyncRequest asks which messages the switch sends without a request (specification 7.3.10).
type GetAsyncRequest struct{}

func noBody(t Type, b []byte) error {
	c := newCursor(t, b)
	return c.done()
}

// MessageType returns TypeFeaturesRequest.
func (*FeaturesRequest) MessageType() Type { return TypeFeaturesRequest }

// AppendBody appends nothing.
func (*FeaturesRequest) AppendBody(b []byte) ([]byte, error) { return b, nil }

// DecodeBody refuses any body.
func (m *FeaturesRequest) DecodeBody(b []byte) error { return noBody(m.MessageType(), b) }

func (m *FeaturesRequest) String() string { return text(m) }

// MessageType returns TypeBarrierRequest.
func (*BarrierRequest) MessageType() Type { return TypeBarrierRequest }

// AppendBody appends nothing.
func (*BarrierRequest) AppendBody(b []byte) ([]byte, error) { return b, nil }

// DecodeBody refuses any body.
func (m *BarrierRequest) DecodeBody(b []byte) error { return noBody(m.MessageType(), b) }

func (m *BarrierRequest) String() string { return text(m) }

// MessageType returns TypeBarrierReply.
func (*BarrierReply) MessageType() Type { return TypeBarrierReply }

// AppendBody appends nothing.
func (*BarrierReply) AppendBody(b []byte) ([]byte, error) { return b, nil }

// DecodeBody refuses any body.
func (m *BarrierReply) DecodeBody(b []byte) error { return noBody(m.MessageType(), b) }

func (m *BarrierReply) String() string { return text(m) }

// MessageType returns TypeGetConfigRequest.
func (*GetConfigRequest) MessageType() Type { return TypeGetConfigRequest }

// AppendBody appends nothing.
func (*GetConfigRequest) AppendBody(b []byte) ([]byte, error) { return b, nil }

// DecodeBody refuses any body.
func (m *GetConfigRequest) DecodeBody(b []byte) error { return noBody(m.MessageType(), b) }

func (m *GetConfigRequest) String() string { return text(m) }

// MessageType returns TypeGetAsyncRequest.
func (*GetAsyncRequest) MessageType() Type { return TypeGetAsyncRequest }

// AppendBody appends nothing.
func (*GetAsyncRequest) AppendBody(b []byte) ([]byte, error) { return b, nil }

// DecodeBody refuses any body.
func (m *GetAsyncRequest) DecodeBody(b []byte) error { return noBody(m.MessageType(), b) }

func (m *GetAsyncRequest) String() string { return text(m) }
