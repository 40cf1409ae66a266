package openflow

// PortStatsRequest asks for the counters of a port, or of all with PortAny (specification 7.3.5.6).
type PortStatsRequest struct {
	PortNo PortNo `json:"port_no"`
}

// PortStats are a port's counters (ofp_port_stats, specification 7.3.5.6). A counter that the switch does not keep is
// all ones.
type PortStats struct {
	PortNo       PortNo `json:"port_no"`
	RxPackets    uint64 `json:"rx_packets"`
	TxPackets    uint64 `json:"tx_packets"`
	RxBytes      uint64 `json:"rx_bytes"`
	TxBytes      uint64 `json:"tx_bytes"`
	RxDropped    uint64 `json:"rx_dropped"`
	TxDropped    uint64 `json:"tx_dropped"`
	RxErrors     uint64 `json:"rx_errors"`
	TxErrors     uint64 `json:"tx_errors"`
	RxFrameErr   uint64 `json:"rx_frame_err"`
	RxOverErr    uint64 `json:"rx_over_err"`
	RxCRCErr     uint64 `json:"rx_crc_err"`
	Collisions   uint64 `json:"collisions"`
	DurationSec  uint32 `json:"duration_sec"`  // age of the port
	DurationNsec uint32 `json:"duration_nsec"` // beyond DurationSec
}

// PortStatsReply gives the counters of ports.
type PortStatsReply []PortStats

const portStatsLen = 112

// MultipartType returns MultipartPortStats.
func (PortStatsRequest) MultipartType() MultipartType { return MultipartPortStats }

// MultipartType returns MultipartPortStats.
func (PortStatsReply) MultipartType() MultipartType { return MultipartPortStats }

func (r PortStatsRequest) append(b []byte, reply bool) ([]byte, error) {
	return appendZeros(be.AppendUint32(b, uint32(r.PortNo)), 4), onlyRequest(MultipartPortStats, reply)
}

func (r PortStatsReply) append(b []byte, reply bool) ([]byte, error) {
	for i := range r {
		s := &r[i]
		b = appendZeros(be.AppendUint32(b, uint32(s.PortNo)), 4)
		for _, v := range [...]uint64{
			s.RxPackets, s.TxPackets, s.RxBytes, s.TxBytes, s.RxDropped, s.TxDropped, s.RxErrors, s.TxErrors,
			s.RxFrameErr, s.RxOverErr, s.RxCRCErr, s.Collisions,
		} {
			b = be.AppendUint64(b, v)
		}
		b = be.AppendUint32(b, s.DurationSec)
		b = be.AppendUint32(b, s.DurationNsec)
	}
	return b, onlyReply(MultipartPortStats, reply)
}

// decode reads the 112 bytes of one port.
func (s *PortStats) decode(b *[portStatsLen]byte) {
	s.PortNo = PortNo(be.Uint32(b[0:]))
	s.RxPackets = be.Uint64(b[8:])
	s.TxPackets = be.Uint64(b[16:])
	s.RxBytes = be.Uint64(b[24:])
	s.TxBytes = be.Uint64(b[32:])
	s.RxDropped = be.Uint64(b[40:])
	s.TxDropped = be.Uint64(b[48:])
	s.RxErrors = be.Uint64(b[56:])
	s.TxErrors = be.Uint64(b[64:])
	s.RxFrameErr = be.Uint64(b[72:])
	s.RxOverErr = be.Uint64(b[80:])
	s.RxCRCErr = be.Uint64(b[88:])
	s.Collisions = be.Uint64(b[96:])
	s.DurationSec = be.Uint32(b[104:])
	s.DurationNsec = be.Uint32(b[108:])
}

// portStats reads into old if that has as many ports, as it has when a switch is polled.
func (c *cursor) portStats(old MultipartBody) MultipartBody {
	r, _ := old.(PortStatsReply)
	if n := len(c.b) / portStatsLen; r == nil || len(r) != n {
		r = make(PortStatsReply, n)
		old = r
	}
	for i := range r {
		r[i].decode((*[portStatsLen]byte)(c.take("port_stats", portStatsLen)))
	}
	if c.more() {
		c.short("port_stats")
	}
	return old
}

// PortStatsIter iterates over a reply with port counters in place, without allocation.
type PortStatsIter struct {
	b    []byte
	More bool // the reply continues in another message
}

// IteratePortStats iterates over the body of a MULTIPART_REPLY. The error is a body that is incomplete or has no port counters.
func IteratePortStats(body []byte) (PortStatsIter, error) {
	c := newCursor(TypeMultipartReply, body)
	t, more := c.multipartHead()
	switch {
	case c.err != nil:
		return PortStatsIter{}, c.err
	case t != MultipartPortStats:
		c.fail("multipart.type", HeaderLen, ErrValue, int(t))
		return PortStatsIter{}, c.err
	case len(c.b)%portStatsLen != 0:
		c.short("port_stats")
		return PortStatsIter{}, c.err
	}
	return PortStatsIter{b: c.b, More: more}, nil
}

// Len returns the number of remaining ports.
func (it *PortStatsIter) Len() int { return len(it.b) / portStatsLen }

// Next reads the next port, and reports whether there was one.
func (it *PortStatsIter) Next(s *PortStats) bool {
	if len(it.b) < portStatsLen {
		return false
	}
	s.decode((*[portStatsLen]byte)(it.b))
	it.b = it.b[portStatsLen:]
	return true
}
