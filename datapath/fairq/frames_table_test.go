package fairq

import (
	"fmt"
	"net/netip"
	"testing"

	"weir/datapath/internal/frames"
)

func tagStacks() map[string][]frames.Tag {
	outer, inner := frames.Tag{TPID: frames.TypeQinQ, TCI: 0x6064}, frames.Tag{TPID: frames.TypeVLAN, TCI: 0xf065}
	return map[string][]frames.Tag{
		"untagged": nil, "802.1Q": {inner}, "802.1ad": {outer}, "802.1ad+Q": {outer, inner}, "802.1Q+Q": {inner, inner},
		"priority": {{TPID: frames.TypeVLAN, TCI: 0x6000}},
	}
}

// ipShapes returns IP headers whose TCP is read.
func ipShapes() map[string]frames.IP {
	shapes := map[string]frames.IP{
		"ipv4 higher address": {From: leftIPv4, To: rightIPv4},
		"ipv4 same address":   {From: leftIPv4, To: leftIPv4},
		"ipv4 do not fragment": {
			From: rightIPv4, To: leftIPv4, Fragment: 0x4000, TOS: 0xb9, ID: 0xbeef,
		},
		"ipv4 evil bit": {From: rightIPv4, To: leftIPv4, Fragment: 0x8000},
	}
	for n := 0; n <= 40; n += 4 {
		ip := frames.IP{From: rightIPv4, To: leftIPv4}
		for i := range n {
			ip.Options = append(ip.Options, byte(i%4*7)) // any: a switch does not read them
		}
		shapes[fmt.Sprintf("ipv4 with %d bytes of options", n)] = ip
	}
	hop, host := frames.Extension{Kind: frames.HopByHop, Body: []byte{5, 2, 0, 0}}, frames.Extension{Kind: frames.ToHost, Body: []byte{1, 2, 0, 0}}
	route := frames.Extension{Kind: frames.Routing, Body: append([]byte{4, 0, 0, 0, 0, 0}, make([]byte, 16)...)}
	long := frames.Extension{Kind: frames.ToHost, Body: make([]byte, 300)}
	for name, chain := range map[string][]frames.Extension{
		"ipv6": nil, "ipv6 hop-by-hop": {hop}, "ipv6 routing": {route}, "ipv6 destination": {host},
		"ipv6 recommended order": {hop, host, route, host}, "ipv6 long": {long}, "ipv6 longest": {{Kind: frames.HopByHop, Body: make([]byte, 2046)}},
		"ipv6 as many as are followed": {hop, host, route, host, long, host},
	} {
		shapes[name] = frames.IP{From: rightIPv6, To: leftIPv6, Extensions: chain, TOS: 0xb9, ID: 0xfff}
	}
	// The keys of both directions are one, whichever address is the smaller, and wherever they differ.
	shapes["ipv6 higher address"] = frames.IP{From: leftIPv6, To: rightIPv6}
	shapes["ipv6 differs in the first word"] = frames.IP{From: netip.MustParseAddr("1::2"), To: netip.MustParseAddr("2::1")}
	shapes["ipv6 same address"] = frames.IP{From: leftIPv6, To: leftIPv6}
	return shapes
}

// unsigned returns lists of TCP options that sign nothing.
func unsigned() map[string][]byte {
	nop, stamps := frames.Nop, frames.Timestamps(0x01020304, 0xa0b0c0d0)
	o := map[string][]byte{
		"none":                      nil,
		"timestamps":                frames.List(frames.OptionNop, nop, nop, stamps),
		"timestamps, NOPs behind":   frames.List(frames.OptionNop, stamps),
		"timestamps, ends behind":   frames.List(frames.OptionEnd, stamps),
		"timestamps between NOPs":   frames.List(frames.OptionNop, nop, stamps),
		"40 NOPs":                   make40(frames.OptionNop),
		"40 ends":                   make40(frames.OptionEnd),
		"MSS and scale in no SYN":   frames.List(frames.OptionNop, frames.MSS(536), frames.Scale(14)),
		"unknown":                   frames.List(frames.OptionNop, frames.Option(253, 1, 2, 3), frames.Option(77)),
		"multipath TCP":             frames.List(frames.OptionNop, nop, nop, stamps, frames.Option(30, make([]byte, 18)...)),
		"fast open":                 frames.List(frames.OptionNop, frames.Option(frames.OptionFastOpen, make([]byte, 8)...)),
		"TCP-MD5 behind the end":    frames.List(frames.OptionEnd, []byte{frames.OptionEnd}, frames.Option(frames.OptionMD5, make([]byte, 16)...)),
		"length 0":                  {8, 0, 1, 1},
		"length 1":                  {8, 1, 1, 1},
		"longer than the header":    {1, 1, 8, 10},
		"kind without a length":     {1, 1, 1, 8},
		"AO's kind without length":  {1, 1, 1, frames.OptionAO},
		"MD5 longer than header":    {frames.OptionMD5, 18, 0, 0},
		"length 0 before TCP-MD5":   frames.List(frames.OptionNop, []byte{8, 0}, frames.Option(frames.OptionMD5, make([]byte, 16)...)),
		"content that looks like 2": frames.List(frames.OptionNop, frames.Option(253, frames.OptionMD5, 18, frames.OptionAO, 16)),
	}
	for blocks := 1; blocks <= 4; blocks++ {
		sack := frames.SACK(blocks, 2000)
		o[fmt.Sprintf("SACK of %d", blocks)] = frames.List(frames.OptionNop, nop, nop, sack)
		if blocks < 4 {
			o[fmt.Sprintf("timestamps, SACK of %d", blocks)] = frames.List(frames.OptionNop, nop, nop, stamps, nop, nop, sack)
			o[fmt.Sprintf("SACK of %d, timestamps", blocks)] = frames.List(frames.OptionEnd, sack, stamps)
		}
	}
	return o
}

func make40(kind byte) []byte {
	list := make([]byte, 40)
	for i := range list {
		list[i] = kind
	}
	return list
}

// signed returns lists of TCP options that sign the segment.
func signed() map[string][]byte {
	nop, stamps := frames.Nop, frames.Timestamps(1, 2)
	md5, ao := frames.Option(frames.OptionMD5, make([]byte, 16)...), frames.Option(frames.OptionAO, make([]byte, 14)...)
	return map[string][]byte{
		"TCP-MD5":                   frames.List(frames.OptionNop, nop, nop, md5),
		"TCP-MD5, ends behind":      frames.List(frames.OptionEnd, md5),
		"TCP-AO":                    frames.List(frames.OptionNop, ao),
		"TCP-AO, short":             frames.List(frames.OptionNop, frames.Option(frames.OptionAO, 1, 2)),
		"TCP-AO of 12 bytes":        frames.Option(frames.OptionAO, make([]byte, 10)...),
		"timestamps, TCP-MD5":       frames.List(frames.OptionNop, nop, nop, stamps, nop, nop, md5),
		"TCP-MD5, timestamps":       frames.List(frames.OptionNop, md5, stamps),
		"SACK, TCP-AO":              frames.List(frames.OptionNop, frames.SACK(1, 5), ao),
		"unknown, TCP-AO":           frames.List(frames.OptionNop, frames.Option(253, 1), ao),
		"22 NOPs, TCP-MD5":          append(make40(frames.OptionNop)[:22], md5...),
		"38 NOPs, TCP-AO unfilled":  append(make40(frames.OptionNop)[:38], frames.OptionAO, 2),
		"timestamps, AO in the end": append(frames.List(frames.OptionNop, nop, nop, stamps), frames.OptionAO, 4, 0, 0),
	}
}

// Every IP header in every stack of tags with every list of options: the program writes only the window and the
// checksum, at their places.
func TestFairQFrames_Shapes(t *testing.T) {
	f := newFrameTable(t, frameConfig{})
	rows := 0
	for tags, stack := range tagStacks() {
		for shape, ip := range ipShapes() {
			c := f.conn(ip)
			c.link.Tags = stack
			c.open(t, f.frameSwitch)
			for options, list := range unsigned() {
				s := c.segment()
				s.Options = list
				f.rewritten(t, fmt.Sprintf("%s, %s, options %s", tags, shape, options), s, rowField, fairqPortCounts{})
				rows++
			}
			// Its SYNs were not signed, so the option has no effect.
			for options, list := range signed() {
				s := c.segment()
				s.Options = list
				f.rewritten(t, fmt.Sprintf("%s, %s, options %s", tags, shape, options), s, rowField, fairqPortCounts{})
				rows++
			}
		}
	}
	t.Logf("%d rows", rows)
}

// Every kind of segment of a known connection.
func TestFairQFrames_Segments(t *testing.T) {
	f := newFrameTable(t, frameConfig{})
	payload := []byte("The quick brown fox jumps over the lazy dog.")
	rows := []struct {
		name   string
		change func(*frames.Segment)
		window uint16
		why    fairqPortCounts
	}{
		{"acknowledgement", func(*frames.Segment) {}, rowField, fairqPortCounts{}},
		{"acknowledgement, padded to 60 bytes", func(s *frames.Segment) { s.Padding = 6 }, rowField, fairqPortCounts{}},
		{"acknowledgement, padded by an odd number", func(s *frames.Segment) { s.Padding = 1001 }, rowField, fairqPortCounts{}},
		{"data", func(s *frames.Segment) { s.Payload = payload }, rowField, fairqPortCounts{Data: 1}},
		{"data of an odd length, pushed", func(s *frames.Segment) { s.Payload, s.Flags = payload[1:], frames.ACK|frames.PSH }, rowField, fairqPortCounts{Data: 1}},
		{"data of 1 byte, padded", func(s *frames.Segment) { s.Payload, s.Padding = payload[:1], 5 }, rowField, fairqPortCounts{Data: 1}},
		{"data of 3000 bytes", func(s *frames.Segment) { s.Payload = make([]byte, 3000) }, rowField, fairqPortCounts{Data: 1}},
		{"urgent data", func(s *frames.Segment) { s.Payload, s.Urgent, s.Flags = payload, 9, frames.ACK|frames.URG }, rowField, fairqPortCounts{Data: 1}},
		{"urgent pointer alone", func(s *frames.Segment) { s.Urgent = 0xffff }, rowField, fairqPortCounts{}},
		{"keep-alive", func(s *frames.Segment) { s.Seq-- }, rowField, fairqPortCounts{}},
		{"keep-alive with a byte", func(s *frames.Segment) { s.Seq, s.Payload = s.Seq-1, []byte{0} }, rowField, fairqPortCounts{Data: 1}},
		{"ECN echo, CWR", func(s *frames.Segment) { s.Flags |= frames.ECE | frames.CWR }, rowField, fairqPortCounts{}},
		{"reserved bits", func(s *frames.Segment) { s.Reserved = 0xf }, rowField, fairqPortCounts{}},
		{"window 65535", func(s *frames.Segment) { s.Window = 65535 }, rowField, fairqPortCounts{}},
		{"window one more than granted", func(s *frames.Segment) { s.Window = rowField + 1 }, rowField, fairqPortCounts{}},
		{"window as granted", func(s *frames.Segment) { s.Window = rowField }, rowField, fairqPortCounts{Smaller: 1}},
		{"window smaller", func(s *frames.Segment) { s.Window = 3 }, 3, fairqPortCounts{Smaller: 1}},
		{"window 0", func(s *frames.Segment) { s.Window = 0 }, 0, fairqPortCounts{Smaller: 1}},
		{"old acknowledgement", func(s *frames.Segment) { s.Ack -= 1 << 30 }, rowField, fairqPortCounts{}},
		{"SYN-ACK sent again", func(s *frames.Segment) { s.Seq, s.Flags = 7000, frames.SYN|frames.ACK }, rowGrant, fairqPortCounts{}},
		{"SYN-ACK of another connection", func(s *frames.Segment) { s.Flags = frames.SYN | frames.ACK }, rowWindow, fairqPortCounts{Unknown: 1}},
		{"SYN of the other end", func(s *frames.Segment) { s.Flags = frames.SYN }, rowWindow, fairqPortCounts{NoAck: 1}},
		{"FIN", func(s *frames.Segment) { s.Flags |= frames.FIN }, rowField, fairqPortCounts{}},
		{"FIN with data", func(s *frames.Segment) { s.Flags, s.Payload = s.Flags|frames.FIN, payload }, rowField, fairqPortCounts{Data: 1}},
		{"FIN without acknowledgement", func(s *frames.Segment) { s.Flags = frames.FIN }, rowWindow, fairqPortCounts{NoAck: 1}},
		{"data without acknowledgement", func(s *frames.Segment) { s.Flags, s.Payload = frames.PSH, payload }, rowWindow, fairqPortCounts{NoAck: 1, Data: 1}},
		{"no flags", func(s *frames.Segment) { s.Flags = 0 }, rowWindow, fairqPortCounts{NoAck: 1}},
		{"SYN and FIN", func(s *frames.Segment) { s.Flags = frames.SYN | frames.FIN }, rowWindow, fairqPortCounts{NoAck: 1}},
		{"all flags", func(s *frames.Segment) { s.Flags = 0xff }, rowWindow, fairqPortCounts{NoAck: 1}},
		{"RST", func(s *frames.Segment) { s.Flags = frames.RST }, rowWindow, fairqPortCounts{NoAck: 1}},
		{"RST with acknowledgement", func(s *frames.Segment) { s.Flags = frames.RST | frames.ACK }, rowWindow, fairqPortCounts{NoAck: 1}},
	}
	for _, ip := range []frames.IP{{}, {From: rightIPv6, To: leftIPv6}} {
		for _, r := range rows {
			c := f.conn(ip)
			c.open(t, f.frameSwitch)
			s := c.segment()
			r.change(s)
			f.rewritten(t, r.name, s, r.window, r.why)
		}
	}
}

// Frames of a known connection that contradict themselves, or whose TCP cannot be read.
func TestFairQFrames_PassAsTheyAre(t *testing.T) {
	f := newFrameTable(t, frameConfig{})
	short, other := fairqPortCounts{Short: 1}, fairqPortCounts{NotTcp: 1}
	tunnel, fragment := fairqPortCounts{Tunnel: 1}, fairqPortCounts{Fragment: 1}
	for _, tags := range tagStacks() {
		v4, v6 := f.conn(frames.IP{}), f.conn(frames.IP{From: rightIPv6, To: leftIPv6})
		v4.link.Tags, v6.link.Tags = tags, tags
		v4.open(t, f.frameSwitch)
		v6.open(t, f.frameSwitch)
		full4, full6 := v4.segment(), v6.segment()
		full4.Payload, full6.Payload = make([]byte, 64), make([]byte, 64)
		b4, b6 := full4.Bytes(), full6.Bytes()
		ip, tcp4, tcp6 := frames.Parse(b4).L3, frames.Parse(b4).L4, frames.Parse(b6).L4
		set := func(b []byte, at int, v ...byte) []byte {
			b = append([]byte(nil), b...)
			copy(b[at:], v)
			return b
		}
		rows := []struct {
			name string
			in   []byte
			why  fairqPortCounts
		}{
			{"ARP", set(b4, ip-2, 0x08, 0x06), other},
			{"LLDP", set(b4, ip-2, 0x88, 0xcc), other},
			{"802.3 length", set(b4, ip-2, 0, 60), other},
			{"data offset 4", set(b4, tcp4+12, 0x40), short},
			{"data offset 0", set(b6, tcp6+12, 0x00), short},
			{"options behind the packet", set(with(full4, func(s *frames.Segment) { s.Payload = nil; s.Padding = 100 }), tcp4+12, 0xf0), short},
			{"options behind the frame", set(b4[:tcp4+30], tcp4+12, 0xf0), short},
			{"ipv4 length longer than the frame", set(b4, ip+2, 0x10, 0), short},
			{"ipv4 length one longer", set(b4, ip+3, b4[ip+3]+1), short},
			{"ipv4 length without TCP", set(b4, ip+2, 0, 20), short},
			{"ipv4 length less than a TCP header", set(b4, ip+2, 0, 39), short},
			{"ipv4 length of 1", set(b4, ip+2, 0, 1), short},
			{"ipv4 header of 16 bytes", set(b4, ip, 0x44), short},
			{"ipv4 header of 60 bytes, not there", set(b4[:ip+50], ip, 0x4f), short},
			{"ipv4 with version 6", set(b4, ip, 0x65), short},
			{"ipv6 length longer than the frame", set(b6, ip+4, 0x10, 0), short},
			{"ipv6 length less than a TCP header", set(b6, ip+4, 0, 19), short},
			{"ipv6 with version 4", set(b6, ip, 0x40), short},
			{"ipv4 TCP header cut", b4[:tcp4+19], short},
			{"ipv6 TCP header cut", b6[:tcp6+19], short},
			{"first fragment", set(b4, ip+6, 0x20, 0), fragment},
			{"later fragment", set(b4, ip+6, 0x20, 0x10), fragment},
			{"last fragment", set(b4, ip+6, 0, 0x10), fragment},
			{"a fragment that says it is UDP", set(set(b4, ip+6, 0x20, 0), ip+9, frames.UDP), fragment},
			{"UDP", set(b4, ip+9, frames.UDP), other},
			{"ICMP", set(b4, ip+9, 1), other},
			{"SCTP", set(b6, ip+6, 132), other},
			{"no next header", set(b6, ip+6, frames.NoNext), other},
			{"GRE", set(b4, ip+9, frames.GRE), tunnel},
			{"ESP", set(b4, ip+9, frames.ESP), tunnel},
			{"AH", set(b4, ip+9, frames.AH), tunnel},
			{"IPIP", frames.Packet(v4.link, v4.ip, frames.IPIP, b4[ip:]), tunnel},
			{"IPv6 in IPv4", frames.Packet(v4.link, v4.ip, frames.IPv6InIP, b6[ip:]), tunnel},
			{"IPv6 in IPv6", frames.Packet(v6.link, v6.ip, frames.IPv6InIP, b6[ip:]), tunnel},
			{"IPv4 in IPv6", frames.Packet(v6.link, v6.ip, frames.IPIP, b4[ip:]), tunnel},
			{"ESP in IPv6", frames.Packet(v6.link, v6.ip, frames.ESP, b4), tunnel},
			{"AH in IPv6 before TCP", chain(full6, frames.Extension{Kind: frames.AH, Body: make([]byte, 22)}), tunnel},
			{"AH behind others", chain(full6, hopByHop, frames.Extension{Kind: frames.AH, Body: make([]byte, 22)}), tunnel},
			{"IPv6 fragment", chain(full6, frames.Extension{Kind: frames.Fragment, Body: []byte{0, 1, 0, 0, 0, 9}}), fragment},
			{"IPv6 later fragment", chain(full6, frames.Extension{Kind: frames.Fragment, Body: []byte{1, 0, 0, 0, 0, 9}}), fragment},
			{"IPv6 atomic fragment", chain(full6, frames.Extension{Kind: frames.Fragment, Body: []byte{0, 0, 0, 0, 0, 9}}), fragment},
			{"IPv6 fragment behind others", chain(full6, hopByHop, hopByHop, frames.Extension{Kind: frames.Fragment, Body: make([]byte, 6)}), fragment},
			{"IPv6, 7 extension headers", chain(full6, hopByHop, hopByHop, hopByHop, hopByHop, hopByHop, hopByHop, hopByHop), other},
			{"IPv6 extension header behind the frame", set(chain(full6, hopByHop), ip+41, 255), short},
			{"IPv6 extension headers cut", chain(full6, hopByHop, hopByHop)[:ip+49], short},
		}
		for _, r := range rows {
			f.same(t, fmt.Sprintf("%d tags, %s", len(tags), r.name), r.in, r.why)
		}
	}
}

var hopByHop = frames.Extension{Kind: frames.HopByHop, Body: []byte{1, 4, 0, 0, 0, 0}}

// chain returns a segment behind IPv6 extension headers.
func chain(s *frames.Segment, e ...frames.Extension) []byte {
	return with(s, func(s *frames.Segment) { s.Extensions = e })
}
