package openflow

// FlowRemovedReason is why a flow entry was removed (ofp_flow_removed_reason, specification 7.4.2).
type FlowRemovedReason uint8

// The reasons.
const (
	RemovedIdleTimeout FlowRemovedReason = iota
	RemovedHardTimeout
	RemovedDelete
	RemovedGroupDelete
)

var flowRemovedReasons = [...]string{"IDLE_TIMEOUT", "HARD_TIMEOUT", "DELETE", "GROUP_DELETE"}

// String returns the specification's name.
func (r FlowRemovedReason) String() string { return nameOf(flowRemovedReasons[:], uint64(r)) }

// MarshalJSON returns the name as a string, or the number.
func (r FlowRemovedReason) MarshalJSON() ([]byte, error) { return nameJSON(r.String()), nil }

// FlowRemoved reports that a flow entry with FlowSendRemoved was removed (specification 7.4.2). Decoding into a used one allocates
// nothing.
type FlowRemoved struct {
	Cookie       uint64            `json:"cookie"`
	Priority     uint16            `json:"priority"`
	Reason       FlowRemovedReason `json:"reason"`
	TableID      TableID           `json:"table_id"`
	DurationSec  uint32            `json:"duration_sec"`  // how long it was there: s,
	DurationNsec uint32            `json:"duration_nsec"` // and ns
	IdleTimeout  uint16            `json:"idle_timeout"`  // s
	HardTimeout  uint16            `json:"hard_timeout"`  // s
	PacketCount  uint64            `json:"packet_count"`
	ByteCount    uint64            `json:"byte_count"`
	Match        Match             `json:"match"`
}

// MessageType returns TypeFlowRemoved.
func (*FlowRemoved) MessageType() Type { return TypeFlowRemoved }

func (m *FlowRemoved) String() string { return text(m) }

// AppendBody appends all fields.
func (m *FlowRemoved) AppendBody(b []byte) ([]byte, error) {
	b = be.AppendUint64(b, m.Cookie)
	b = be.AppendUint16(b, m.Priority)
	b = append(b, byte(m.Reason), byte(m.TableID))
	b = be.AppendUint32(b, m.DurationSec)
	b = be.AppendUint32(b, m.DurationNsec)
	b = be.AppendUint16(b, m.IdleTimeout)
	b = be.AppendUint16(b, m.HardTimeout)
	b = be.AppendUint64(b, m.PacketCount)
	b = be.AppendUint64(b, m.ByteCount)
	return m.Match.append(b)
}

// DecodeBody reads all fields.
func (m *FlowRemoved) DecodeBody(b []byte) error {
	c := newCursor(TypeFlowRemoved, b)
	m.Cookie = c.u64("cookie")
	m.Priority = c.u16("priority")
	m.Reason = FlowRemovedReason(c.u8("reason"))
	m.TableID = TableID(c.u8("table_id"))
	m.DurationSec = c.u32("duration_sec")
	m.DurationNsec = c.u32("duration_nsec")
	m.IdleTimeout = c.u16("idle_timeout")
	m.HardTimeout = c.u16("hard_timeout")
	m.PacketCount = c.u64("packet_count")
	m.ByteCount = c.u64("byte_count")
	c.match(&m.Match)
	return c.done()
}
