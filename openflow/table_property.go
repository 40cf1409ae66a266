package openflow

import "fmt"

// TablePropertyType is the content of a property (ofp_table_feature_prop_type). Each odd type has the meaning of the even one before
// it, but for the table-miss entry, if that differs.
type TablePropertyType uint16

// The properties.
const (
	TableInstructions      TablePropertyType = 0
	TableInstructionsMiss  TablePropertyType = 1
	TableNextTables        TablePropertyType = 2
	TableNextTablesMiss    TablePropertyType = 3
	TableWriteActions      TablePropertyType = 4
	TableWriteActionsMiss  TablePropertyType = 5
	TableApplyActions      TablePropertyType = 6
	TableApplyActionsMiss  TablePropertyType = 7
	TableMatch             TablePropertyType = 8
	TableWildcards         TablePropertyType = 10
	TableWriteSetField     TablePropertyType = 12
	TableWriteSetFieldMiss TablePropertyType = 13
	TableApplySetField     TablePropertyType = 14
	TableApplySetFieldMiss TablePropertyType = 15
	TableExperimenter      TablePropertyType = 0xfffe
	TableExperimenterMiss  TablePropertyType = 0xffff
)

var tableProperties = [...]string{
	"INSTRUCTIONS", "INSTRUCTIONS_MISS", "NEXT_TABLES", "NEXT_TABLES_MISS", "WRITE_ACTIONS", "WRITE_ACTIONS_MISS",
	"APPLY_ACTIONS", "APPLY_ACTIONS_MISS", "MATCH", "", "WILDCARDS", "", "WRITE_SETFIELD", "WRITE_SETFIELD_MISS",
	"APPLY_SETFIELD", "APPLY_SETFIELD_MISS",
}

// String returns the specification's name.
func (t TablePropertyType) String() string {
	switch t {
	case TableExperimenter:
		return "EXPERIMENTER"
	case TableExperimenterMiss:
		return "EXPERIMENTER_MISS"
	}
	return nameOf(tableProperties[:], uint64(t))
}

// MarshalJSON returns the name as a string, or the number.
func (t TablePropertyType) MarshalJSON() ([]byte, error) { return nameJSON(t.String()), nil }

// TableProperty lists a table's features of one kind; only the list of its type is used.
type TableProperty struct {
	Type         TablePropertyType `json:"type"`
	Instructions []InstructionID   `json:"instruction_ids,omitempty"`
	NextTables   []TableID         `json:"next_table_ids,omitempty"`
	Actions      []ActionID        `json:"action_ids,omitempty"`
	Fields       []FieldHeader     `json:"oxm_ids,omitempty"`
	Experimenter uint32            `json:"experimenter,omitempty"`
	ExpType      uint32            `json:"exp_type,omitempty"`
	Data         HexBytes          `json:"data,omitempty"`
}

// InstructionID identifies an instruction.
type InstructionID struct {
	Type         InstructionType `json:"type"`
	Experimenter uint32          `json:"experimenter,omitempty"`
}

// ActionID identifies an action.
type ActionID struct {
	Type         ActionType `json:"type"`
	Experimenter uint32     `json:"experimenter,omitempty"`
}

// FieldHeader identifies a field, and whether it may have a mask.
type FieldHeader struct {
	ID      FieldID
	HasMask bool
	Length  uint8 // of the field's value and mask, in bytes, with an experimenter's number
}

// String returns the field's name, with a star if it may have a mask.
func (h FieldHeader) String() string {
	if h.HasMask {
		return h.ID.String() + "*"
	}
	return h.ID.String()
}

// MarshalText returns the same as String.
func (h FieldHeader) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// String returns the name.
func (i InstructionID) String() string { return idText(i.Type, i.Experimenter) }

// String returns the name.
func (a ActionID) String() string { return idText(a.Type, a.Experimenter) }

func idText(t fmt.Stringer, experimenter uint32) string {
	if experimenter != 0 {
		return fmt.Sprintf("%s:%#x", t, experimenter)
	}
	return t.String()
}

// has returns which list a property of that type has.
func (t TablePropertyType) has() string {
	switch t {
	case TableInstructions, TableInstructionsMiss:
		return "instruction_ids"
	case TableNextTables, TableNextTablesMiss:
		return "next_table_ids"
	case TableWriteActions, TableWriteActionsMiss, TableApplyActions, TableApplyActionsMiss:
		return "action_ids"
	case TableMatch, TableWildcards, TableWriteSetField, TableWriteSetFieldMiss, TableApplySetField, TableApplySetFieldMiss:
		return "oxm_ids"
	case TableExperimenter, TableExperimenterMiss:
		return "experimenter"
	}
	return ""
}

func (p *TableProperty) append(b []byte) ([]byte, error) {
	start := len(b)
	b = be.AppendUint16(b, uint16(p.Type))
	b = be.AppendUint16(b, 0)
	switch p.Type.has() {
	case "instruction_ids":
		for _, i := range p.Instructions {
			b = appendID(b, uint16(i.Type), i.Experimenter)
		}
	case "next_table_ids":
		for _, t := range p.NextTables {
			b = append(b, byte(t))
		}
	case "action_ids":
		for _, a := range p.Actions {
			b = appendID(b, uint16(a.Type), a.Experimenter)
		}
	case "oxm_ids":
		for _, h := range p.Fields {
			b = h.append(b)
		}
	case "experimenter":
		b = be.AppendUint32(b, p.Experimenter)
		b = be.AppendUint32(b, p.ExpType)
		b = append(b, p.Data...)
	default:
		return b, &EncodeError{Message: "table property", Field: "type", Err: ErrUnknown, Value: int64(p.Type)}
	}
	b, err := putLength(b, start, start+2, "table property") // which does not count the padding
	return appendPad(b, start), err
}

func (h FieldHeader) append(b []byte) []byte {
	hasMask := byte(0)
	if h.HasMask {
		hasMask = 1
	}
	b = append(be.AppendUint16(b, h.ID.Class()), h.ID.Number()<<1|hasMask, h.Length)
	if h.ID.Class() == ClassExperimenter {
		b = be.AppendUint32(b, h.ID.Experimenter())
	}
	return b
}

const idExperimenter = 0xffff // of instructions and actions alike

func appendID(b []byte, t uint16, experimenter uint32) []byte {
	b = be.AppendUint16(b, t)
	if t == idExperimenter {
		return be.AppendUint32(be.AppendUint16(b, 8), experimenter)
	}
	return be.AppendUint16(b, 4)
}

// tableProperty reads one property with its padding.
func (c *cursor) tableProperty() TableProperty {
	at := c.at()
	typ, e := c.element("table_property", 4, 1)
	if c.err != nil {
		return TableProperty{}
	}
	n := 4 + len(e.b)
	p := TableProperty{Type: TablePropertyType(typ)}
	switch p.Type.has() {
	case "instruction_ids":
		for e.more() {
			t, experimenter := e.id("instruction_id")
			p.Instructions = append(p.Instructions, InstructionID{InstructionType(t), experimenter})
		}
	case "next_table_ids":
		for _, t := range e.rest() {
			p.NextTables = append(p.NextTables, TableID(t))
		}
	case "action_ids":
		for e.more() {
			t, experimenter := e.id("action_id")
			p.Actions = append(p.Actions, ActionID{ActionType(t), experimenter})
		}
	case "oxm_ids":
		for e.more() {
			p.Fields = append(p.Fields, e.fieldHeader())
		}
	case "experimenter":
		p.Experimenter = e.u32("table_property.experimenter")
		p.ExpType = e.u32("table_property.exp_type")
		p.Data = e.rest()
	default:
		e.fail("table_property.type", at, ErrUnknown, int(typ))
	}
	c.join(&e)
	c.pad((8 - n%8) % 8)
	return p
}

// id reads the head of an instruction or action, which identifies its type.
func (c *cursor) id(field string) (typ uint16, experimenter uint32) {
	at := c.at()
	typ, e := c.element(field, 4, 4)
	if c.err != nil {
		return typ, 0
	}
	if typ == idExperimenter {
		experimenter = e.u32(field + ".experimenter")
	}
	if e.more() {
		e.fail(field+".length", at+2, ErrLength, e.end-at)
	}
	c.join(&e)
	return typ, experimenter
}

func (c *cursor) fieldHeader() FieldHeader {
	b := c.take("oxm_id", 4)
	if b == nil {
		return FieldHeader{}
	}
	h := FieldHeader{HasMask: b[2]&1 != 0, Length: b[3]}
	experimenter := uint32(0)
	class := be.Uint16(b)
	if class == ClassExperimenter {
		experimenter = c.u32("oxm_id.experimenter")
	}
	h.ID = NewFieldID(class, b[2]>>1, experimenter)
	return h
}
