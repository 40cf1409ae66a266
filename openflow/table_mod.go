package openflow

// TableMod configures a table. OpenFlow 1.3 has no bits for it: its two lowest are of earlier versions
// (specification 7.3.3).
type TableMod struct {
	TableID TableID `json:"table_id"`
	Config  uint32  `json:"config"`
}

// MessageType returns TypeTableMod.
func (*TableMod) MessageType() Type { return TypeTableMod }

// AppendBody appends the 8 bytes.
func (m *TableMod) AppendBody(b []byte) ([]byte, error) {
	return be.AppendUint32(append(b, byte(m.TableID), 0, 0, 0), m.Config), nil
}

// DecodeBody reads the 8 bytes.
func (m *TableMod) DecodeBody(b []byte) error {
	c := newCursor(TypeTableMod, b)
	m.TableID = TableID(c.u8("table_id"))
	c.pad(3)
	m.Config = c.u32("config")
	return c.done()
}

func (m *TableMod) String() string { return text(m) }
