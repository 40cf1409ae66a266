package openflow

// Messages that are nothing but their header. One with a body is refused, as the specification's BAD_LEN.

// FeaturesRequest asks a switch who it is (specification 7.3.1).
type FeaturesRequest struct{}

// BarrierRequest asks for a BarrierReply once all before it is done (specification 7.3.8).
type BarrierRequest struct{}

// BarrierReply answers a BarrierRequest.
type BarrierReply struct{}

// GetConfigRequest asks for the switch's configuration (specification 7.3.2).
type GetConfigRequest struct{}

// GetAsyncRequest asks which messages the switch sends unasked (specification 7.3.10).
type GetAsyncRequest struct{}

func noBody(t Type, b []byte) error {
	c := newCursor(t, b)
	return c.done()
}

// MessageType gives TypeFeaturesRequest.
func (*FeaturesRequest) MessageType() Type { return TypeFeaturesRequest }

// AppendBody appends nothing.
func (*FeaturesRequest) AppendBody(b []byte) ([]byte, error) { return b, nil }

// DecodeBody refuses all but nothing.
func (m *FeaturesRequest) DecodeBody(b []byte) error { return noBody(m.MessageType(), b) }

func (m *FeaturesRequest) String() string { return text(m) }

// MessageType gives TypeBarrierRequest.
func (*BarrierRequest) MessageType() Type { return TypeBarrierRequest }

// AppendBody appends nothing.
func (*BarrierRequest) AppendBody(b []byte) ([]byte, error) { return b, nil }

// DecodeBody refuses all but nothing.
func (m *BarrierRequest) DecodeBody(b []byte) error { return noBody(m.MessageType(), b) }

func (m *BarrierRequest) String() string { return text(m) }

// MessageType gives TypeBarrierReply.
func (*BarrierReply) MessageType() Type { return TypeBarrierReply }

// AppendBody appends nothing.
func (*BarrierReply) AppendBody(b []byte) ([]byte, error) { return b, nil }

// DecodeBody refuses all but nothing.
func (m *BarrierReply) DecodeBody(b []byte) error { return noBody(m.MessageType(), b) }

func (m *BarrierReply) String() string { return text(m) }

// MessageType gives TypeGetConfigRequest.
func (*GetConfigRequest) MessageType() Type { return TypeGetConfigRequest }

// AppendBody appends nothing.
func (*GetConfigRequest) AppendBody(b []byte) ([]byte, error) { return b, nil }

// DecodeBody refuses all but nothing.
func (m *GetConfigRequest) DecodeBody(b []byte) error { return noBody(m.MessageType(), b) }

func (m *GetConfigRequest) String() string { return text(m) }

// MessageType gives TypeGetAsyncRequest.
func (*GetAsyncRequest) MessageType() Type { return TypeGetAsyncRequest }

// AppendBody appends nothing.
func (*GetAsyncRequest) AppendBody(b []byte) ([]byte, error) { return b, nil }

// DecodeBody refuses all but nothing.
func (m *GetAsyncRequest) DecodeBody(b []byte) error { return noBody(m.MessageType(), b) }

func (m *GetAsyncRequest) String() string { return text(m) }
