package main

import (
	"bytes"
	"encoding/binary"

	"weir/openflow"
)

const (
	portsOfSwitch = 48  // in a reply with statistics
	errorsEvery   = 100 // replies: then one port shows an error, and the law acts
	packetRun     = 256 // packet-ins that are written at once
)

// templates is what switches say again and again, encoded once.
type templates struct {
	packetIns   []byte // packetRun of them
	packetInLen int
	stats       []byte
}

func newTemplates() (t templates, err error) {
	one, err := packetIn()
	if err != nil {
		return t, err
	}
	t.packetIns, t.packetInLen = bytes.Repeat(one, packetRun), len(one)
	t.stats, err = portStats()
	return t, err
}

// packetIn is a SYN, as a switch copies it.
func packetIn() ([]byte, error) {
	frame := make([]byte, 74)
	copy(frame, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 60})
	in := openflow.PacketIn{BufferID: openflow.NoBuffer, TotalLen: uint16(len(frame)), Match: openflow.Match{openflow.InPort(3)}, Data: frame}
	return openflow.Append(nil, 0, &in)
}

// portStats is what a switch of 48 ports answers.
func portStats() ([]byte, error) {
	all := make(openflow.PortStatsReply, portsOfSwitch)
	for i := range all {
		n := uint64(i)
		all[i] = openflow.PortStats{PortNo: openflow.PortNo(i + 1), RxPackets: 1e6 + n, TxPackets: 2e6 + n, RxBytes: 1e9 + n, TxBytes: 2e9 + n, DurationSec: 1000}
	}
	return openflow.Append(nil, 0, &openflow.MultipartReply{Type: openflow.MultipartPortStats, Body: all})
}

// appendStats appends the same reply each time, but for the transaction and, every so often, an error at the last port.
func (t *templates) appendStats(out []byte, xid uint32, faulty bool) []byte {
	at := len(out)
	out = append(out, t.stats...)
	binary.BigEndian.PutUint32(out[at+4:], xid)
	if faulty {
		const rxErrors, entry = 56, 112 // bytes: ofp_port_stats
		out[len(out)-entry+rxErrors+7] = 1
	}
	return out
}

// appendReply answers a question as a switch does; nothing, if it is none.
func appendReply(out []byte, datapath uint64, h openflow.Header, body []byte) ([]byte, error) {
	var reply openflow.Message
	switch h.Type {
	case openflow.TypeFeaturesRequest:
		reply = &openflow.FeaturesReply{DatapathID: datapath, Tables: 254, Capabilities: openflow.CapabilityPortStats}
	case openflow.TypeEchoRequest:
		reply = &openflow.EchoReply{Data: body}
	case openflow.TypeBarrierRequest:
		reply = &openflow.BarrierReply{}
	case openflow.TypeRoleRequest:
		var role openflow.RoleRequest
		if err := role.DecodeBody(body); err != nil {
			return out, err
		}
		reply = &openflow.RoleReply{Role: role.Role, GenerationID: role.GenerationID}
	case openflow.TypeMultipartRequest: // for port descriptions; requests for statistics are answered elsewhere
		reply = &openflow.MultipartReply{Type: openflow.MultipartPortDesc, Body: openflow.PortDescReply{}}
	default:
		return out, nil
	}
	return openflow.Append(out, h.XID, reply)
}
