package sed

// Port is the state of a switch's port: normal (NOR) or congested (CNG). There is one message for each change, and none for each
// packet. Between the two thresholds the state stays.
type Port struct {
	threshold, recover int64 // bytes
	congested          bool
}

// NewPort returns a port in the normal state.
func NewPort(p *Params) Port {
	return Port{threshold: int64(p.Threshold.Bytes()), recover: int64(p.Recover.Bytes())}
}

// See takes the queue, in bytes, and reports whether the state changed.
func (p *Port) See(queue int64) bool {
	was := p.congested
	switch {
	case queue >= p.threshold:
		p.congested = true
	case queue <= p.recover:
		p.congested = false
	}
	return p.congested != was
}

// Congested reports whether the port is congested.
func (p *Port) Congested() bool { return p.congested }
