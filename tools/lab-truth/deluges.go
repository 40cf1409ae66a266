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
	// node is whom it is sent to. By default it has a port of its own on the switch, so that the flood's
	// bytes take nothing from the bottleneck.
	node    string
	cookies string // net.ipv4.tcp_syncookies there; "": 1
	forges  bool   // in the live flows' names: the count may be off while it lasts
	// fill makes a segment to `to` (its port to be set), of the live flows' ends if it forges.
	fill func(r *rand.Rand, s *forged, to netip.Addr, live []liveEnds)
}

// liveEnds are the two ends of a live flow.
type liveEnds struct{ client, server netip.AddrPort }

// fromStranger makes a fill of segments from random ends to a port; 0: any.
func fromStranger(port uint16, change func(s *forged)) func(*rand.Rand, *forged, netip.Addr, []liveEnds) {
	return func(r *rand.Rand, s *forged, to netip.Addr, _ []liveEnds) {
		p := port
		if p == 0 {
			p = uint16(1024 + r.IntN(64000))
		}
		s.from, s.to = stranger(r), netip.AddrPortFrom(to, p)
		change(s)
	}
}

// forLiveFlow makes a fill of segments in the name of either end of a live flow.
func forLiveFlow(flags byte) func(*rand.Rand, *forged, netip.Addr, []liveEnds) {
	return func(r *rand.Rand, s *forged, _ netip.Addr, live []liveEnds) {
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
		{name: "live flows' RSTs", rate: forgeRate, forges: true, fill: forLiveFlow(flagRST)},
		{name: "live flows' FINs", rate: forgeRate, forges: true, fill: forLiveFlow(flagFIN | flagACK)},
		{name: "live flows' SYNs", rate: forgeRate, forges: true, fill: forLiveFlow(flagSYN)},
	}
}
