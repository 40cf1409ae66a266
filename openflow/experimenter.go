package openflow

// Experimenter is an experimenter's own message, as it was received (specification 7.5.5).
type Experimenter struct {
	Experimenter uint32   `json:"experimenter"`
	ExpType      uint32   `json:"exp_type"`
	Data         HexBytes `json:"data"`
}

// MessageType returns TypeExperimenter.
func (*Experimenter) MessageType() Type { return TypeExperimenter }

// AppendBody appends all of it.
func (m *Experimenter) AppendBody(b []byte) ([]byte, error) {
	b = be.AppendUint32(b, m.Experimenter)
	b = be.AppendUint32(b, m.ExpType)
	return append(b, m.Data...), nil
}

// DecodeBody reads all of it.
func (m *Experimenter) DecodeBody(b []byte) error {
	c := newCursor(TypeExperimenter, b)
	m.Experimenter = c.u32("experimenter")
	m.ExpType = c.u32("exp_type")
	m.Data = c.rest()
	return c.err
}

func (m *Experimenter) String() string { return text(m) }
