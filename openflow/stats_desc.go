package openflow

const (
	descLen   = 256 // DESC_STR_LEN
	serialLen = 32  // SERIAL_NUM_LEN
)

// DescReply has a switch's description by its maker (ofp_desc, specification 7.3.5.1).
type DescReply struct {
	Manufacturer string `json:"mfr_desc"`
	Hardware     string `json:"hw_desc"`
	Software     string `json:"sw_desc"`
	SerialNum    string `json:"serial_num"`
	Datapath     string `json:"dp_desc"`
}

// MultipartType returns MultipartDesc.
func (*DescReply) MultipartType() MultipartType { return MultipartDesc }

func (d *DescReply) append(b []byte, reply bool) ([]byte, error) {
	if err := onlyReply(MultipartDesc, reply); err != nil {
		return b, err
	}
	for _, s := range [...]struct {
		name, text string
		n          int
	}{
		{"mfr_desc", d.Manufacturer, descLen},
		{"hw_desc", d.Hardware, descLen},
		{"sw_desc", d.Software, descLen},
		{"serial_num", d.SerialNum, serialLen},
		{"dp_desc", d.Datapath, descLen},
	} {
		var err error
		if b, err = appendText(b, s.text, s.n, s.name); err != nil {
			return b, err
		}
	}
	return b, nil
}

func (c *cursor) desc() *DescReply {
	return &DescReply{
		Manufacturer: c.text("mfr_desc", descLen),
		Hardware:     c.text("hw_desc", descLen),
		Software:     c.text("sw_desc", descLen),
		SerialNum:    c.text("serial_num", serialLen),
		Datapath:     c.text("dp_desc", descLen),
	}
}

// PortDescReply describes all ports of a switch (specification 7.3.5.7).
type PortDescReply []Port

// MultipartType returns MultipartPortDesc.
func (PortDescReply) MultipartType() MultipartType { return MultipartPortDesc }

func (r PortDescReply) append(b []byte, reply bool) ([]byte, error) {
	err := onlyReply(MultipartPortDesc, reply)
	for i := 0; i < len(r) && err == nil; i++ {
		b, err = r[i].append(b)
	}
	return b, err
}

func (c *cursor) portDesc() PortDescReply {
	r := make(PortDescReply, 0, len(c.b)/portLen)
	for c.more() {
		var p Port
		p.decode(c)
		r = append(r, p)
	}
	return r
}
