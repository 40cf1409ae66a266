package main

import (
	"math/rand/v2"
	"net/netip"
)

var synOptions = []byte{2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7} // MSS, SACK, timestamps, scale

// deluge is one kind of flood.
type deluge struct {
	name string
	rate int
	// node is the target. By default it has its own port on the switch, so that the flood's bytes do not use the
	// bottleneck.
	node    string
	cookies string // net.ipv4.tcp_syncookies there; "": 1
	forges  bool   // with the addresses of active flows: the count may be off during the flood
	// answered is true if guests answer each segment with an ACK, so that the active flows lose goodput without Weir, too. The limit
	// then holds for what drop-tail leaves of it.
	answered bool
	// fill makes a segment to `to` (its port is not set yet); if forges, with the addresses of an active flow.
	fill func(r *rand.Rand, s *forged, to netip.Addr, live []flowEnds)
}

// flowEnds are the two ends of an active flow.
type flowEnds struct{ client, server netip.AddrPort }

// fromStranger returns a fill of segments from random ends to a port; 0: any.
func fromStranger(port uint16, change func(s *forged)) func(*rand.Rand, *forged, netip.Addr, []flowEnds) {
	return func(r *rand.Rand, s *forged, to netip.Addr, _ []flowEnds) {
		p := port
		if p == 0 {
			p = uint16(1024 + r.IntN(64000))
		}
		s.from, s.to = stranger(r), netip.AddrPortFrom(to, p)
		change(s)
	}
}

// forActiveFlow returns a fill of segments with the addresses of either end of an active flow.
func forActiveFlow(flags byte) func(*rand.Rand, *forged, netip.Addr, []flowEnds) {
	return func(r *rand.Rand, s *forged, _ netip.Addr, live []flowEnds) {
		e := live[r.IntN(len(live))]
		s.from, s.to, s.flags = e.client, e.server, flags
		if r.IntN(2) == 0 {
			s.from, s.to = e.server, e.client
		}
		if flags&flagSYN != 0 {
			s.options = synOptions
		}
	}
}

// creditDeluges are the floods that ask for credits: SYN-ACKs and requests promise a first flight, acknowledgements release data.
func creditDeluges() []deluge {
	withData := forActiveFlow(flagACK | flagPSH)
	return []deluge{
		{name: "SYNs, open port, cookies", rate: floodRate, cookies: "2", fill: fromStranger(openPort, syn)},
		{name: "SYNs through the bottleneck", rate: floodRate, node: "receiver1", cookies: "2", fill: fromStranger(openPort, syn)},
		{name: "active flows' requests", rate: floodRate, forges: true, answered: true, fill: func(r *rand.Rand, s *forged, to netip.Addr, live []flowEnds) {
			withData(r, s, to, live)
			s.payload = make([]byte, 16)
		}},
		{name: "active flows' ACKs", rate: floodRate, forges: true, fill: forActiveFlow(flagACK)},
	}
}

func syn(s *forged) { s.flags, s.ack, s.options = flagSYN, 0, synOptions }

func deluges() []deluge {
	return []deluge{
		{name: "SYNs, open port, cookies", rate: floodRate, cookies: "2", fill: fromStranger(openPort, syn)},
		{name: "SYNs, open port, no cookies", rate: floodRate, cookies: "0", fill: fromStranger(openPort, syn)},
		{name: "SYNs, closed port", rate: floodRate, fill: fromStranger(closedPort, syn)},
		{name: "SYNs through the bottleneck", rate: floodRate, node: "receiver1", cookies: "2", fill: fromStranger(openPort, syn)},
		{name: "ACKs of no connection", rate: floodRate, fill: fromStranger(0, func(s *forged) { s.flags = flagACK })},
		{name: "data of no connection", rate: floodRate, fill: fromStranger(0, func(s *forged) { s.flags, s.payload = flagACK|flagPSH, make([]byte, 16) })},
		{name: "SYN-ACKs without a SYN", rate: floodRate, fill: fromStranger(0, func(s *forged) { s.flags, s.options = flagACK|flagSYN, synOptions })},
		{name: "active flows' RSTs", rate: forgeRate, forges: true, fill: forActiveFlow(flagRST)},
		{name: "active flows' FINs", rate: forgeRate, forges: true, fill: forActiveFlow(flagFIN | flagACK)},
		{name: "active flows' SYNs", rate: forgeRate, forges: true, fill: forActiveFlow(flagSYN)},
	}
}
