package openflow

// MeterStatsRequest asks for a meter's counters, or all meters' with MeterAll (specification 7.3.5.12).
type MeterStatsRequest struct {
	MeterID MeterID `json:"meter_id"`
}

// MeterConfigRequest asks for a meter as it was made, or all with MeterAll (specification 7.3.5.13).
type MeterConfigRequest struct {
	MeterID MeterID `json:"meter_id"`
}

// BandStats counts the packets above a band's rate (ofp_meter_band_stats).
type BandStats struct {
	PacketCount uint64 `json:"packet_band_count"`
	ByteCount   uint64 `json:"byte_band_count"`
}

// MeterStats are a meter's counters (ofp_meter_stats, specification 7.3.5.12).
type MeterStats struct {
	MeterID       MeterID     `json:"meter_id"`
	FlowCount     uint32      `json:"flow_count"` // flow entries that use it
	PacketInCount uint64      `json:"packet_in_count"`
	ByteInCount   uint64      `json:"byte_in_count"`
	DurationSec   uint32      `json:"duration_sec"`
	DurationNsec  uint32      `json:"duration_nsec"`
	BandStats     []BandStats `json:"band_stats"`
}

// MeterStatsReply gives the counters of meters.
type MeterStatsReply []MeterStats

// MeterConfig is a meter as it was made (ofp_meter_config, specification 7.3.5.13).
type MeterConfig struct {
	Flags   MeterFlags `json:"flags"`
	MeterID MeterID    `json:"meter_id"`
	Bands   []Band     `json:"bands"`
}

// MeterConfigReply gives meters as they were made.
type MeterConfigReply []MeterConfig

// MeterFeaturesReply has the features of a switch's meters (ofp_meter_features, specification 7.3.5.14).
type MeterFeaturesReply struct {
	MaxMeter     uint32 `json:"max_meter"`
	BandTypes    uint32 `json:"band_types"`   // bit n: BandType n
	Capabilities uint32 `json:"capabilities"` // as MeterFlags
	MaxBands     uint8  `json:"max_bands"`    // of one meter
	MaxColor     uint8  `json:"max_color"`
}

// MultipartType returns MultipartMeter.
func (MeterStatsRequest) MultipartType() MultipartType { return MultipartMeter }

// MultipartType returns MultipartMeterConfig.
func (MeterConfigRequest) MultipartType() MultipartType { return MultipartMeterConfig }

// MultipartType returns MultipartMeter.
func (MeterStatsReply) MultipartType() MultipartType { return MultipartMeter }

// MultipartType returns MultipartMeterConfig.
func (MeterConfigReply) MultipartType() MultipartType { return MultipartMeterConfig }

// MultipartType returns MultipartMeterFeatures.
func (MeterFeaturesReply) MultipartType() MultipartType { return MultipartMeterFeatures }

func (r MeterStatsRequest) append(b []byte, reply bool) ([]byte, error) {
	return appendZeros(be.AppendUint32(b, uint32(r.MeterID)), 4), onlyRequest(MultipartMeter, reply)
}

func (r MeterConfigRequest) append(b []byte, reply bool) ([]byte, error) {
	return appendZeros(be.AppendUint32(b, uint32(r.MeterID)), 4), onlyRequest(MultipartMeterConfig, reply)
}

func (r MeterStatsReply) append(b []byte, reply bool) ([]byte, error) {
	err := onlyReply(MultipartMeter, reply)
	for i := 0; i < len(r) && err == nil; i++ {
		s := &r[i]
		start := len(b)
		b = be.AppendUint32(b, uint32(s.MeterID))
		b = appendZeros(b, 8)
		b = be.AppendUint32(b, s.FlowCount)
		b = be.AppendUint64(b, s.PacketInCount)
		b = be.AppendUint64(b, s.ByteInCount)
		b = be.AppendUint32(b, s.DurationSec)
		b = be.AppendUint32(b, s.DurationNsec)
		for _, k := range s.BandStats {
			b = be.AppendUint64(be.AppendUint64(b, k.PacketCount), k.ByteCount)
		}
		b, err = putLength(b, start, start+4, "meter stats")
	}
	return b, err
}

func (c *cursor) meterStats() MeterStatsReply {
	r := MeterStatsReply{}
	for c.more() {
		at := c.at()
		if len(c.b) < 40 {
			c.short("meter_stats")
			break
		}
		n := int(be.Uint16(c.b[4:]))
		if n < 40 {
			c.fail("meter_stats.len", at+4, ErrLength, n)
			break
		}
		e := c.sub("meter_stats.len", n)
		s := MeterStats{MeterID: MeterID(e.u32("meter_id"))}
		e.pad(8)
		s.FlowCount = e.u32("flow_count")
		s.PacketInCount = e.u64("packet_in_count")
		s.ByteInCount = e.u64("byte_in_count")
		s.DurationSec = e.u32("duration_sec")
		s.DurationNsec = e.u32("duration_nsec")
		for e.more() {
			s.BandStats = append(s.BandStats, BandStats{e.u64("packet_band_count"), e.u64("byte_band_count")})
		}
		c.join(&e)
		r = append(r, s)
	}
	return r
}

func (r MeterConfigReply) append(b []byte, reply bool) ([]byte, error) {
	err := onlyReply(MultipartMeterConfig, reply)
	for i := 0; i < len(r) && err == nil; i++ {
		start := len(b)
		b = be.AppendUint16(appendZeros(b, 2), uint16(r[i].Flags))
		if b, err = appendBands(be.AppendUint32(b, uint32(r[i].MeterID)), r[i].Bands); err == nil {
			b, err = putLength(b, start, start, "meter config")
		}
	}
	return b, err
}

func (c *cursor) meterConfig() MeterConfigReply {
	r := MeterConfigReply{}
	for c.more() {
		e := c.sized("meter_config.length", 8, 1)
		if c.err != nil {
			break
		}
		k := MeterConfig{Flags: MeterFlags(e.u16("flags")), MeterID: MeterID(e.u32("meter_id"))}
		k.Bands = e.bands(nil)
		c.join(&e)
		r = append(r, k)
	}
	return r
}

func (r MeterFeaturesReply) append(b []byte, reply bool) ([]byte, error) {
	b = be.AppendUint32(b, r.MaxMeter)
	b = be.AppendUint32(b, r.BandTypes)
	b = be.AppendUint32(b, r.Capabilities)
	return append(b, r.MaxBands, r.MaxColor, 0, 0), onlyReply(MultipartMeterFeatures, reply)
}

func (c *cursor) meterFeatures() MeterFeaturesReply {
	r := MeterFeaturesReply{MaxMeter: c.u32("max_meter"), BandTypes: c.u32("band_types"), Capabilities: c.u32("capabilities")}
	r.MaxBands, r.MaxColor = c.u8("max_bands"), c.u8("max_color")
	c.pad(2)
	return r
}
