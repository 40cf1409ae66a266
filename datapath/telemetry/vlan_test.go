package telemetry_test

import (
	"net/netip"
	"testing"

	"weir/datapath/internal/frames"
)

// A port between switches may have tagged packets where the port to a host has none. Both directions are one connection: a request that
// follows an answer counts.
func TestTelemetry_TagsOfOneDirection(t *testing.T) {
	p := newProgram(t)
	tags := [][]frames.Tag{{{TPID: frames.TypeVLAN, TCI: 5}}, {{TPID: frames.TypeQinQ, TCI: 5}, {TPID: frames.TypeVLAN, TCI: 6}}}
	for i, ends := range [][2]string{{"10.0.0.1", "10.0.0.2"}, {"fd00::1", "fd00::2"}, {"10.0.0.3", "10.0.0.4"}, {"fd00::3", "fd00::4"}} {
		var requests, found uint64
		seq, ack := uint32(100), uint32(500)
		send := func(client bool, flags byte, payload int) {
			t.Helper()
			s := frames.Segment{FromPort: 40000, ToPort: 80, Flags: flags, Seq: seq, Ack: ack, Payload: make([]byte, payload)}
			s.From, s.To, s.Tags = netip.MustParseAddr(ends[0]), netip.MustParseAddr(ends[1]), tags[i/2]
			if !client {
				s.From, s.To, s.FromPort, s.ToPort, s.Seq, s.Ack, s.Tags = s.To, s.From, 80, 40000, ack, seq, nil
			}
			if _, _, err := p.run(s.Append(nil)); err != nil {
				t.Fatal(err)
			}
			c := p.counted(t)
			requests, found = requests+c.Request, found+c.Found
			length := uint32(payload)
			if flags&frames.SYN != 0 {
				length++
			}
			if client {
				seq += length
			} else {
				ack += length
			}
		}
		send(true, frames.SYN, 0)
		send(false, frames.SYN|frames.ACK, 0)
		for range 3 {
			send(true, frames.ACK, 10)
			send(false, frames.ACK, 1000)
		}
		if requests != 3 || found != 0 {
			t.Errorf("%s: %d requests, %d connections found in the middle; want 3, 0", ends[0], requests, found)
		}
	}
}
