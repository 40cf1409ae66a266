package openflow

// Capabilities are the optional features of a switch (ofp_capabilities, specification 7.3.1).
type Capabilities uint32

// The bits of Capabilities.
const (
	CapabilityFlowStats   Capabilities = 1 << 0
	CapabilityTableStats  Capabilities = 1 << 1
	CapabilityPortStats   Capabilities = 1 << 2
	CapabilityGroupStats  Capabilities = 1 << 3
	CapabilityIPReasm     Capabilities = 1 << 5
	CapabilityQueueStats  Capabilities = 1 << 6
	CapabilityPortBlocked Capabilities = 1 << 8
)

var capabilityNames = [...]string{"FLOW_STATS", "TABLE_STATS", "PORT_STATS", "GROUP_STATS", "", "IP_REASM", "QUEUE_STATS", "", "PORT_BLOCKED"}

// String returns the names of the bits.
func (c Capabilities) String() string { return flagsOf(capabilityNames[:], uint64(c)) }

// MarshalJSON returns an array of names.
func (c Capabilities) MarshalJSON() ([]byte, error) { return flagsJSON(c.String()), nil }

// DatapathID is a switch's identity: 48 bits of a MAC address below 16 of its owner's choice.
type DatapathID = uint64

// FeaturesReply has a switch's identity and features (specification 7.3.1).
type FeaturesReply struct {
	DatapathID   DatapathID   `json:"datapath_id"`
	Buffers      uint32       `json:"n_buffers"` // packets that it can buffer
	Tables       uint8        `json:"n_tables"`
	AuxiliaryID  uint8        `json:"auxiliary_id"` // 0: the main connection
	Capabilities Capabilities `json:"capabilities"`
	Reserved     uint32       `json:"reserved"`
}

// MessageType returns TypeFeaturesReply.
func (*FeaturesReply) MessageType() Type { return TypeFeaturesReply }

func (m *FeaturesReply) String() string { return text(m) }

// AppendBody appends the 24 bytes.
func (m *FeaturesReply) AppendBody(b []byte) ([]byte, error) {
	b = be.AppendUint64(b, m.DatapathID)
	b = be.AppendUint32(b, m.Buffers)
	b = append(b, m.Tables, m.AuxiliaryID, 0, 0)
	b = be.AppendUint32(b, uint32(m.Capabilities))
	return be.AppendUint32(b, m.Reserved), nil
}

// DecodeBody reads the 24 bytes.
func (m *FeaturesReply) DecodeBody(b []byte) error {
	c := newCursor(TypeFeaturesReply, b)
	m.DatapathID = c.u64("datapath_id")
	m.Buffers = c.u32("n_buffers")
	m.Tables = c.u8("n_tables")
	m.AuxiliaryID = c.u8("auxiliary_id")
	c.pad(2)
	m.Capabilities = Capabilities(c.u32("capabilities"))
	m.Reserved = c.u32("reserved")
	return c.done()
}
