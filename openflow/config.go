package openflow

// ConfigFlags is the treatment of IP fragments by a switch (ofp_config_flags, specification 7.3.2).
type ConfigFlags uint16

// The ways to treat fragments.
const (
	FragNormal ConfigFlags = 0
	FragDrop   ConfigFlags = 1
	FragReasm  ConfigFlags = 2
)

var fragNames = [...]string{"FRAG_NORMAL", "FRAG_DROP", "FRAG_REASM"}

// String returns the specification's name.
func (f ConfigFlags) String() string { return nameOf(fragNames[:], uint64(f)) }

// MarshalJSON returns the name as a string, or the number.
func (f ConfigFlags) MarshalJSON() ([]byte, error) { return nameJSON(f.String()), nil }

// GetConfigReply gives a switch's configuration (specification 7.3.2).
type GetConfigReply struct {
	Flags       ConfigFlags `json:"flags"`
	MissSendLen uint16      `json:"miss_send_len"` // bytes of a packet that go to the controller; NoMaxLen: all
}

// SetConfig changes it.
type SetConfig struct {
	Flags       ConfigFlags `json:"flags"`
	MissSendLen uint16      `json:"miss_send_len"`
}

// MessageType returns TypeGetConfigReply.
func (*GetConfigReply) MessageType() Type { return TypeGetConfigReply }

// AppendBody appends the 4 bytes.
func (m *GetConfigReply) AppendBody(b []byte) ([]byte, error) {
	return be.AppendUint16(be.AppendUint16(b, uint16(m.Flags)), m.MissSendLen), nil
}

// DecodeBody reads the 4 bytes.
func (m *GetConfigReply) DecodeBody(b []byte) error {
	c := newCursor(TypeGetConfigReply, b)
	m.Flags, m.MissSendLen = ConfigFlags(c.u16("flags")), c.u16("miss_send_len")
	return c.done()
}

func (m *GetConfigReply) String() string { return text(m) }

// MessageType returns TypeSetConfig.
func (*SetConfig) MessageType() Type { return TypeSetConfig }

// AppendBody appends the 4 bytes.
func (m *SetConfig) AppendBody(b []byte) ([]byte, error) {
	return be.AppendUint16(be.AppendUint16(b, uint16(m.Flags)), m.MissSendLen), nil
}

// DecodeBody reads the 4 bytes.
func (m *SetConfig) DecodeBody(b []byte) error {
	c := newCursor(TypeSetConfig, b)
	m.Flags, m.MissSendLen = ConfigFlags(c.u16("flags")), c.u16("miss_send_len")
	return c.done()
}

func (m *SetConfig) String() string { return text(m) }
