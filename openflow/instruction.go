package openflow

import (
	"fmt"
	"strings"
)

// InstructionType is the kind of an instruction (ofp_instruction_type, specification 7.2.4).
type InstructionType uint16

// The instructions of OpenFlow 1.3.
const (
	InstructionTypeGotoTable     InstructionType = 1
	InstructionTypeWriteMetadata InstructionType = 2
	InstructionTypeWriteActions  InstructionType = 3
	InstructionTypeApplyActions  InstructionType = 4
	InstructionTypeClearActions  InstructionType = 5
	InstructionTypeMeter         InstructionType = 6
	InstructionTypeExperimenter  InstructionType = 0xffff
)

var instructionNames = [...]string{"", "goto_table", "write_metadata", "write_actions", "apply_actions", "clear_actions", "meter"}

// String returns the specification's name in lower case.
func (t InstructionType) String() string {
	if t == InstructionTypeExperimenter {
		return "experimenter"
	}
	return nameOf(instructionNames[:], uint64(t))
}

// MarshalJSON returns the name as a string, or the number.
func (t InstructionType) MarshalJSON() ([]byte, error) { return nameJSON(t.String()), nil }

// Instruction is one instruction of a flow entry: one of the structs named Instruction... of this package.
type Instruction interface {
	InstructionType() InstructionType
	String() string
	append(b []byte) ([]byte, error)
}

// Instructions are those of one flow entry; none drops the packet.
type Instructions []Instruction

// InstructionGotoTable continues in a later table.
type InstructionGotoTable struct {
	TableID TableID `json:"table_id"`
}

// InstructionWriteMetadata sets bits of the metadata that later tables match.
type InstructionWriteMetadata struct {
	Metadata uint64 `json:"metadata"`
	Mask     uint64 `json:"metadata_mask"`
}

// InstructionWriteActions adds to the set of actions that are done when no table is left.
type InstructionWriteActions struct {
	Actions Actions `json:"actions"`
}

// InstructionApplyActions does the actions at once, in their order.
type InstructionApplyActions struct {
	Actions Actions `json:"actions"`
}

// InstructionClearActions empties the set of actions.
type InstructionClearActions struct{}

// InstructionMeter passes the packet through a meter first.
type InstructionMeter struct {
	MeterID MeterID `json:"meter_id"`
}

// InstructionExperimenter is an experimenter's own instruction, as it was received.
type InstructionExperimenter struct {
	Experimenter uint32   `json:"experimenter"`
	Data         HexBytes `json:"data"` // filled up with zeros to whole 8 bytes when written, less 8
}

// InstructionType returns InstructionTypeGotoTable.
func (InstructionGotoTable) InstructionType() InstructionType { return InstructionTypeGotoTable }

// InstructionType returns InstructionTypeWriteMetadata.
func (InstructionWriteMetadata) InstructionType() InstructionType {
	return InstructionTypeWriteMetadata
}

// InstructionType returns InstructionTypeWriteActions.
func (InstructionWriteActions) InstructionType() InstructionType { return InstructionTypeWriteActions }

// InstructionType returns InstructionTypeApplyActions.
func (InstructionApplyActions) InstructionType() InstructionType { return InstructionTypeApplyActions }

// InstructionType returns InstructionTypeClearActions.
func (InstructionClearActions) InstructionType() InstructionType { return InstructionTypeClearActions }

// InstructionType returns InstructionTypeMeter.
func (InstructionMeter) InstructionType() InstructionType { return InstructionTypeMeter }

// InstructionType returns InstructionTypeExperimenter.
func (InstructionExperimenter) InstructionType() InstructionType { return InstructionTypeExperimenter }

func (i InstructionGotoTable) String() string { return "goto_table:" + i.TableID.String() }
func (i InstructionWriteMetadata) String() string {
	return fmt.Sprintf("write_metadata:%#x/%#x", i.Metadata, i.Mask)
}
func (i InstructionWriteActions) String() string { return "write_actions(" + i.Actions.String() + ")" }
func (i InstructionApplyActions) String() string { return "apply_actions(" + i.Actions.String() + ")" }
func (InstructionClearActions) String() string   { return "clear_actions" }
func (i InstructionMeter) String() string        { return "meter:" + i.MeterID.String() }
func (i InstructionExperimenter) String() string {
	return fmt.Sprintf("experimenter:%#x:%s", i.Experimenter, i.Data)
}

// String returns the instructions, with commas; "drop" for none.
func (is Instructions) String() string {
	if len(is) == 0 {
		return "drop"
	}
	parts := make([]string, len(is))
	for i, x := range is {
		parts[i] = x.String()
	}
	return strings.Join(parts, ",")
}

// MarshalJSON returns an array of objects, each with its type and its parameters.
func (is Instructions) MarshalJSON() ([]byte, error) {
	return typedList(is, func(i Instruction) string { return i.InstructionType().String() })
}

func appendInstructionHead(b []byte, t InstructionType, length uint16) []byte {
	b = be.AppendUint16(b, uint16(t))
	return be.AppendUint16(b, length)
}

func (i InstructionGotoTable) append(b []byte) ([]byte, error) {
	return append(appendInstructionHead(b, InstructionTypeGotoTable, 8), byte(i.TableID), 0, 0, 0), nil
}

func (i InstructionWriteMetadata) append(b []byte) ([]byte, error) {
	b = appendZeros(appendInstructionHead(b, InstructionTypeWriteMetadata, 24), 4)
	b = be.AppendUint64(b, i.Metadata)
	return be.AppendUint64(b, i.Mask), nil
}

func appendActionsInstruction(b []byte, t InstructionType, as Actions) ([]byte, error) {
	start := len(b)
	b, err := as.append(appendZeros(appendInstructionHead(b, t, 0), 4))
	if err != nil {
		return b, err
	}
	return putLength(b, start, start+2, "instruction")
}

func (i InstructionWriteActions) append(b []byte) ([]byte, error) {
	return appendActionsInstruction(b, InstructionTypeWriteActions, i.Actions)
}

func (i InstructionApplyActions) append(b []byte) ([]byte, error) {
	return appendActionsInstruction(b, InstructionTypeApplyActions, i.Actions)
}

func (InstructionClearActions) append(b []byte) ([]byte, error) {
	return appendZeros(appendInstructionHead(b, InstructionTypeClearActions, 8), 4), nil
}

func (i InstructionMeter) append(b []byte) ([]byte, error) {
	return be.AppendUint32(appendInstructionHead(b, InstructionTypeMeter, 8), uint32(i.MeterID)), nil
}

func (i InstructionExperimenter) append(b []byte) ([]byte, error) {
	start := len(b)
	b = be.AppendUint32(appendInstructionHead(b, InstructionTypeExperimenter, 0), i.Experimenter)
	b = appendPad(append(b, i.Data...), start)
	return putLength(b, start, start+2, "instruction experimenter")
}

func (is Instructions) append(b []byte) ([]byte, error) {
	var err error
	for _, i := range is {
		if b, err = i.append(b); err != nil {
			return b, err
		}
	}
	return b, nil
}

// instructions reads all that is left as instructions.
func (c *cursor) instructions(is Instructions) Instructions {
	is = is[:0]
	for c.more() {
		at := c.at()
		typ, e := c.element("instruction", 8, 8)
		if c.err != nil {
			break
		}
		if i := e.instructionBody(InstructionType(typ), at); i != nil {
			is = append(is, i)
		}
		c.join(&e)
	}
	return is
}

// instructionBody reads what follows an instruction's length. at is where the instruction begins.
func (c *cursor) instructionBody(typ InstructionType, at int) (i Instruction) {
	length := 8
	switch typ {
	case InstructionTypeGotoTable:
		i = InstructionGotoTable{TableID: TableID(c.u8("goto_table.table_id"))}
	case InstructionTypeWriteMetadata:
		length = 24
		c.pad(4)
		i = InstructionWriteMetadata{Metadata: c.u64("write_metadata.metadata"), Mask: c.u64("write_metadata.metadata_mask")}
	case InstructionTypeWriteActions, InstructionTypeApplyActions:
		c.pad(4)
		as := c.actions(nil)
		if typ == InstructionTypeWriteActions {
			return InstructionWriteActions{Actions: as}
		}
		return InstructionApplyActions{Actions: as}
	case InstructionTypeClearActions:
		i = InstructionClearActions{}
	case InstructionTypeMeter:
		i = InstructionMeter{MeterID: MeterID(c.u32("meter.meter_id"))}
	case InstructionTypeExperimenter:
		return InstructionExperimenter{Experimenter: c.u32("instruction.experimenter"), Data: c.rest()}
	default:
		c.fail("instruction.type", at, ErrUnknown, int(typ))
		return nil
	}
	if n := c.end - at; c.err == nil && n != length {
		c.fail("instruction.length", at+2, ErrLength, n)
	}
	return i
}
