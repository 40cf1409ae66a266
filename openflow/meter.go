package openflow

// MeterCommand is what a meter-mod does (ofp_meter_mod_command, specification 7.3.4.4).
type MeterCommand uint16

// The commands.
const (
	MeterAdd MeterCommand = iota
	MeterModify
	MeterDelete
)

var meterCommands = [...]string{"ADD", "MODIFY", "DELETE"}

// String returns the specification's name.
func (c MeterCommand) String() string { return nameOf(meterCommands[:], uint64(c)) }

// MarshalJSON returns the name as a string, or the number.
func (c MeterCommand) MarshalJSON() ([]byte, error) { return nameJSON(c.String()), nil }

// MeterFlags selects the units and counters of a meter (ofp_meter_flags).
type MeterFlags uint16

// The flags. Rates and bursts are in kbit/s and kbit, or in packets/s and packets.
const (
	MeterFlagKbps MeterFlags = 1 << iota
	MeterFlagPktps
	MeterFlagBurst // burst sizes count
	MeterFlagStats
)

var meterFlagNames = [...]string{"KBPS", "PKTPS", "BURST", "STATS"}

// String returns the names of the flags.
func (f MeterFlags) String() string { return flagsOf(meterFlagNames[:], uint64(f)) }

// MarshalJSON returns an array of names.
func (f MeterFlags) MarshalJSON() ([]byte, error) { return flagsJSON(f.String()), nil }

// BandType is the treatment of packets above a band's rate (ofp_meter_band_type).
type BandType uint16

// The types.
const (
	BandDrop         BandType = 1
	BandDSCPRemark   BandType = 2
	BandExperimenter BandType = 0xffff
)

var bandTypes = [...]string{"", "DROP", "DSCP_REMARK"}

// String returns the specification's name.
func (t BandType) String() string {
	if t == BandExperimenter {
		return "EXPERIMENTER"
	}
	return nameOf(bandTypes[:], uint64(t))
}

// MarshalJSON returns the name as a string, or the number.
func (t BandType) MarshalJSON() ([]byte, error) { return nameJSON(t.String()), nil }

// Band is one rate of a meter (ofp_meter_band_header).
type Band struct {
	Type         BandType `json:"type"`
	Rate         uint32   `json:"rate"`                   // above which it acts: kbit/s or packets/s
	BurstSize    uint32   `json:"burst_size"`             // kbit or packets
	PrecLevel    uint8    `json:"prec_level,omitempty"`   // of BandDSCPRemark: by how much the drop precedence rises
	Experimenter uint32   `json:"experimenter,omitempty"` // of BandExperimenter, as Data
	Data         HexBytes `json:"data,omitempty"`
}

// MeterMod changes a meter (specification 7.3.4.4).
type MeterMod struct {
	Command MeterCommand `json:"command"`
	Flags   MeterFlags   `json:"flags"`
	MeterID MeterID      `json:"meter_id"`
	Bands   []Band       `json:"bands"`
}

// MessageType returns TypeMeterMod.
func (*MeterMod) MessageType() Type { return TypeMeterMod }

// AppendBody appends all fields.
func (m *MeterMod) AppendBody(b []byte) ([]byte, error) {
	b = be.AppendUint16(b, uint16(m.Command))
	b = be.AppendUint16(b, uint16(m.Flags))
	return appendBands(be.AppendUint32(b, uint32(m.MeterID)), m.Bands)
}

// DecodeBody reads all fields.
func (m *MeterMod) DecodeBody(b []byte) error {
	c := newCursor(TypeMeterMod, b)
	m.Command = MeterCommand(c.u16("command"))
	m.Flags = MeterFlags(c.u16("flags"))
	m.MeterID = MeterID(c.u32("meter_id"))
	m.Bands = c.bands(m.Bands)
	return c.err
}

func (m *MeterMod) String() string { return text(m) }

func appendBands(b []byte, bands []Band) ([]byte, error) {
	for i := range bands {
		k := &bands[i]
		start := len(b)
		b = be.AppendUint16(b, uint16(k.Type))
		b = be.AppendUint16(b, 0)
		b = be.AppendUint32(b, k.Rate)
		b = be.AppendUint32(b, k.BurstSize)
		switch k.Type {
		case BandDrop:
			b = appendZeros(b, 4)
		case BandDSCPRemark:
			b = append(b, k.PrecLevel, 0, 0, 0)
		case BandExperimenter:
			b = append(be.AppendUint32(b, k.Experimenter), k.Data...)
		default:
			return b, &EncodeError{Message: "band", Field: "type", Err: ErrUnknown, Value: int64(k.Type)}
		}
		var err error
		if b, err = putLength(b, start, start+2, "band"); err != nil {
			return b, err
		}
	}
	return b, nil
}

// bands reads all that is left as meter bands.
func (c *cursor) bands(list []Band) []Band {
	list = list[:0]
	for c.more() {
		at := c.at()
		typ, e := c.element("band", 16, 1)
		if c.err != nil {
			break
		}
		k := Band{Type: BandType(typ), Rate: e.u32("band.rate"), BurstSize: e.u32("band.burst_size")}
		switch k.Type {
		case BandDrop:
			e.pad(4)
		case BandDSCPRemark:
			k.PrecLevel = e.u8("band.prec_level")
			e.pad(3)
		case BandExperimenter:
			k.Experimenter = e.u32("band.experimenter")
			k.Data = e.rest()
		default:
			e.fail("band.type", at, ErrUnknown, int(typ))
		}
		if e.more() {
			e.fail("band.length", at+2, ErrLength, e.end-at)
		}
		c.join(&e)
		list = append(list, k)
	}
	return list
}
