package openflow

// FlowStatsRequest asks for flow entries: those that it matches, as a non-strict delete would choose them
// (specification 7.3.5.2).
type FlowStatsRequest struct {
	TableID    TableID `json:"table_id"` // or TableAll
	OutPort    PortNo  `json:"out_port"` // or PortAny
	OutGroup   GroupID `json:"out_group"`
	Cookie     uint64  `json:"cookie"`
	CookieMask uint64  `json:"cookie_mask"` // 0: any cookie
	Match      Match   `json:"match"`
}

// AggregateStatsRequest asks for the sum over the same entries (specification 7.3.5.3).
type AggregateStatsRequest FlowStatsRequest

// FlowStats is one flow entry with its counters (ofp_flow_stats, specification 7.3.5.2).
type FlowStats struct {
	TableID      TableID      `json:"table_id"`
	DurationSec  uint32       `json:"duration_sec"`
	DurationNsec uint32       `json:"duration_nsec"` // beyond DurationSec
	Priority     uint16       `json:"priority"`
	IdleTimeout  uint16       `json:"idle_timeout"` // s
	HardTimeout  uint16       `json:"hard_timeout"` // s
	Flags        FlowFlags    `json:"flags"`
	Cookie       uint64       `json:"cookie"`
	PacketCount  uint64       `json:"packet_count"`
	ByteCount    uint64       `json:"byte_count"`
	Match        Match        `json:"match"`
	Instructions Instructions `json:"instructions"`
}

// FlowStatsReply gives flow entries.
type FlowStatsReply []FlowStats

// AggregateStatsReply gives their sum.
type AggregateStatsReply struct {
	PacketCount uint64 `json:"packet_count"`
	ByteCount   uint64 `json:"byte_count"`
	FlowCount   uint32 `json:"flow_count"`
}

// MultipartType returns MultipartFlow.
func (FlowStatsRequest) MultipartType() MultipartType { return MultipartFlow }

// MultipartType returns MultipartAggregate.
func (AggregateStatsRequest) MultipartType() MultipartType { return MultipartAggregate }

// MultipartType returns MultipartFlow.
func (FlowStatsReply) MultipartType() MultipartType { return MultipartFlow }

// MultipartType returns MultipartAggregate.
func (AggregateStatsReply) MultipartType() MultipartType { return MultipartAggregate }

func (r FlowStatsRequest) append(b []byte, reply bool) ([]byte, error) {
	if err := onlyRequest(MultipartFlow, reply); err != nil {
		return b, err
	}
	b = append(b, byte(r.TableID), 0, 0, 0)
	b = be.AppendUint32(b, uint32(r.OutPort))
	b = be.AppendUint32(b, uint32(r.OutGroup))
	b = appendZeros(b, 4)
	b = be.AppendUint64(b, r.Cookie)
	b = be.AppendUint64(b, r.CookieMask)
	return r.Match.append(b)
}

func (r AggregateStatsRequest) append(b []byte, reply bool) ([]byte, error) {
	return FlowStatsRequest(r).append(b, reply)
}

func (c *cursor) flowStatsRequest() FlowStatsRequest {
	r := FlowStatsRequest{TableID: TableID(c.u8("table_id"))}
	c.pad(3)
	r.OutPort = PortNo(c.u32("out_port"))
	r.OutGroup = GroupID(c.u32("out_group"))
	c.pad(4)
	r.Cookie = c.u64("cookie")
	r.CookieMask = c.u64("cookie_mask")
	c.match(&r.Match)
	return r
}

func (r FlowStatsReply) append(b []byte, reply bool) ([]byte, error) {
	err := onlyReply(MultipartFlow, reply)
	for i := 0; i < len(r) && err == nil; i++ {
		b, err = r[i].append(b)
	}
	return b, err
}

func (s *FlowStats) append(b []byte) ([]byte, error) {
	start := len(b)
	b = append(b, 0, 0, byte(s.TableID), 0)
	b = be.AppendUint32(b, s.DurationSec)
	b = be.AppendUint32(b, s.DurationNsec)
	b = be.AppendUint16(b, s.Priority)
	b = be.AppendUint16(b, s.IdleTimeout)
	b = be.AppendUint16(b, s.HardTimeout)
	b = be.AppendUint16(b, uint16(s.Flags))
	b = appendZeros(b, 4)
	b = be.AppendUint64(b, s.Cookie)
	b = be.AppendUint64(b, s.PacketCount)
	b = be.AppendUint64(b, s.ByteCount)
	b, err := s.Match.append(b)
	if err != nil {
		return b, err
	}
	if b, err = s.Instructions.append(b); err != nil {
		return b, err
	}
	return putLength(b, start, start, "flow stats")
}

func (c *cursor) flowStats() FlowStatsReply {
	r := FlowStatsReply{}
	for c.more() {
		e := c.sized("flow_stats.length", 56, 8)
		if c.err != nil {
			break
		}
		s := FlowStats{TableID: TableID(e.u8("table_id"))}
		e.pad(1)
		s.DurationSec = e.u32("duration_sec")
		s.DurationNsec = e.u32("duration_nsec")
		s.Priority = e.u16("priority")
		s.IdleTimeout = e.u16("idle_timeout")
		s.HardTimeout = e.u16("hard_timeout")
		s.Flags = FlowFlags(e.u16("flags"))
		e.pad(4)
		s.Cookie = e.u64("cookie")
		s.PacketCount = e.u64("packet_count")
		s.ByteCount = e.u64("byte_count")
		e.match(&s.Match)
		s.Instructions = e.instructions(nil)
		c.join(&e)
		r = append(r, s)
	}
	return r
}

func (r AggregateStatsReply) append(b []byte, reply bool) ([]byte, error) {
	b = be.AppendUint64(b, r.PacketCount)
	b = be.AppendUint64(b, r.ByteCount)
	b = be.AppendUint32(b, r.FlowCount)
	return appendZeros(b, 4), onlyReply(MultipartAggregate, reply)
}
