package native

// ArrivalsEnd is struct arrivals_end.
type ArrivalsEnd struct {
	DataNs uint64
	Behind uint32
	State  uint8
	_      [3]uint8
}

// ArrivalsFlow is struct arrivals_flow: what a switch knows of a connection. The zero value: it has seen nothing.
type ArrivalsFlow struct {
	End    [2]ArrivalsEnd
	Opener uint8
	Last   uint8
	_      [6]uint8
}

// ArrivalsPacket is struct arrivals_packet.
type ArrivalsPacket struct {
	NowNs   uint64
	Seq     uint32
	Ack     uint32
	Payload uint32
	Flags   uint8 // as in the TCP header
	Side    uint8
	_       [2]uint8
}

// ArrivalMatters reports whether a packet can be an arrival: arrivals_matter. If not, it changes no state.
func ArrivalMatters(payload uint32, flags uint8) bool {
	const synFinRst = 7
	return payload > 0 || flags&synFinRst != 0
}
