package openflow

// FlowModCommand is what a flow-mod does (ofp_flow_mod_command, specification 7.3.4.1).
type FlowModCommand uint8

// The commands. The strict ones select the one entry with the same match and priority.
const (
	FlowAdd FlowModCommand = iota
	FlowModify
	FlowModifyStrict
	FlowDelete
	FlowDeleteStrict
)

var flowModCommands = [...]string{"ADD", "MODIFY", "MODIFY_STRICT", "DELETE", "DELETE_STRICT"}

// String returns the specification's name.
func (c FlowModCommand) String() string { return nameOf(flowModCommands[:], uint64(c)) }

// MarshalJSON returns the name as a string, or the number.
func (c FlowModCommand) MarshalJSON() ([]byte, error) { return nameJSON(c.String()), nil }

// FlowFlags are a flow entry's flags (ofp_flow_mod_flags).
type FlowFlags uint16

// The flags.
const (
	FlowSendRemoved FlowFlags = 1 << iota
	FlowCheckOverlap
	FlowResetCounts
	FlowNoPacketCounts
	FlowNoByteCounts
)

var flowFlagNames = [...]string{"SEND_FLOW_REM", "CHECK_OVERLAP", "RESET_COUNTS", "NO_PKT_COUNTS", "NO_BYT_COUNTS"}

// String returns the names of the flags.
func (f FlowFlags) String() string { return flagsOf(flowFlagNames[:], uint64(f)) }

// MarshalJSON returns an array of names.
func (f FlowFlags) MarshalJSON() ([]byte, error) { return flagsJSON(f.String()), nil }

// FlowMod changes a flow table (specification 7.3.4.1).
type FlowMod struct {
	Cookie       uint64         `json:"cookie"`
	CookieMask   uint64         `json:"cookie_mask"` // of entries to modify or delete; 0: any
	TableID      TableID        `json:"table_id"`
	Command      FlowModCommand `json:"command"`
	IdleTimeout  uint16         `json:"idle_timeout"` // s, 0: none
	HardTimeout  uint16         `json:"hard_timeout"` // s, 0: none
	Priority     uint16         `json:"priority"`
	BufferID     uint32         `json:"buffer_id"` // NoBuffer, or a packet to send through the tables afterwards
	OutPort      PortNo         `json:"out_port"`  // deletes only entries that output there; PortAny: all
	OutGroup     GroupID        `json:"out_group"` // deletes only entries that use it; GroupAny: all
	Flags        FlowFlags      `json:"flags"`
	Match        Match          `json:"match"`
	Instructions Instructions   `json:"instructions"`
}

// MessageType returns TypeFlowMod.
func (*FlowMod) MessageType() Type { return TypeFlowMod }

func (m *FlowMod) String() string { return text(m) }

// AppendBody appends all fields.
func (m *FlowMod) AppendBody(b []byte) ([]byte, error) {
	b = be.AppendUint64(b, m.Cookie)
	b = be.AppendUint64(b, m.CookieMask)
	b = append(b, byte(m.TableID), byte(m.Command))
	b = be.AppendUint16(b, m.IdleTimeout)
	b = be.AppendUint16(b, m.HardTimeout)
	b = be.AppendUint16(b, m.Priority)
	b = be.AppendUint32(b, m.BufferID)
	b = be.AppendUint32(b, uint32(m.OutPort))
	b = be.AppendUint32(b, uint32(m.OutGroup))
	b = be.AppendUint16(b, uint16(m.Flags))
	b, err := m.Match.append(appendZeros(b, 2))
	if err != nil {
		return b, err
	}
	return m.Instructions.append(b)
}

// DecodeBody reads all fields.
func (m *FlowMod) DecodeBody(b []byte) error {
	c := newCursor(TypeFlowMod, b)
	m.Cookie = c.u64("cookie")
	m.CookieMask = c.u64("cookie_mask")
	m.TableID = TableID(c.u8("table_id"))
	m.Command = FlowModCommand(c.u8("command"))
	m.IdleTimeout = c.u16("idle_timeout")
	m.HardTimeout = c.u16("hard_timeout")
	m.Priority = c.u16("priority")
	m.BufferID = c.u32("buffer_id")
	m.OutPort = PortNo(c.u32("out_port"))
	m.OutGroup = GroupID(c.u32("out_group"))
	m.Flags = FlowFlags(c.u16("flags"))
	c.pad(2)
	c.match(&m.Match)
	m.Instructions = c.instructions(m.Instructions)
	return c.err
}
