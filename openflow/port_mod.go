package openflow

// PortMod changes a port (specification 7.3.4.3).
type PortMod struct {
	PortNo    PortNo       `json:"port_no"`
	HwAddr    MAC          `json:"hw_addr"` // must be the port's address, as a check
	Config    PortConfig   `json:"config"`
	Mask      PortConfig   `json:"mask"`      // the bits of Config that change
	Advertise PortFeatures `json:"advertise"` // 0: unchanged
}

// MessageType returns TypePortMod.
func (*PortMod) MessageType() Type { return TypePortMod }

// AppendBody appends all fields.
func (m *PortMod) AppendBody(b []byte) ([]byte, error) {
	b = appendZeros(be.AppendUint32(b, uint32(m.PortNo)), 4)
	b = appendZeros(append(b, m.HwAddr[:]...), 2)
	b = be.AppendUint32(b, uint32(m.Config))
	b = be.AppendUint32(b, uint32(m.Mask))
	b = be.AppendUint32(b, uint32(m.Advertise))
	return appendZeros(b, 4), nil
}

// DecodeBody reads all fields.
func (m *PortMod) DecodeBody(b []byte) error {
	c := newCursor(TypePortMod, b)
	m.PortNo = PortNo(c.u32("port_no"))
	c.pad(4)
	copy(m.HwAddr[:], c.take("hw_addr", 6))
	c.pad(2)
	m.Config = PortConfig(c.u32("config"))
	m.Mask = PortConfig(c.u32("mask"))
	m.Advertise = PortFeatures(c.u32("advertise"))
	c.pad(4)
	return c.done()
}

func (m *PortMod) String() string { return text(m) }
