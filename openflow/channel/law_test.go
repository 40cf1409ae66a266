package channel

import (
	"net"
	"net/netip"
	"time"

	"weir/openflow"
)

// law is a handler as small as one can be that does something: it learns the packet's source port and answers with a
// flow for its destination. Each connection has one, as its State.
type law struct {
	mod    openflow.FlowMod
	output openflow.ActionOutput
	seen   map[openflow.MAC]openflow.PortNo
	failed int
}

func newLaw() *law {
	l := &law{seen: make(map[openflow.MAC]openflow.PortNo)}
	l.mod = openflow.FlowMod{
		Priority: 10, IdleTimeout: 60, BufferID: openflow.NoBuffer, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny,
		Match: openflow.Match{openflow.InPort(0), openflow.EthType(0x800), openflow.IPv4Dst(netip.IPv4Unspecified(), netip.Addr{})},
		Instructions: openflow.Instructions{openflow.InstructionApplyActions{
			Actions: openflow.Actions{&l.output}, // by reference: its port changes
		}},
	}
	return l
}

func (l *law) step(c *Conn, in *openflow.PacketIn) {
	port, ok := in.Match.InPort()
	if !ok || len(in.Data) < 34 {
		l.failed++
		return
	}
	l.seen[openflow.MAC(in.Data[6:12])] = port
	out, ok := l.seen[openflow.MAC(in.Data[0:6])]
	if !ok {
		out = openflow.PortFlood
	}
	l.output.Port = out
	l.mod.Match[0] = openflow.InPort(port)
	l.mod.Match[2] = openflow.IPv4Dst(netip.AddrFrom4([4]byte(in.Data[30:34])), netip.Addr{})
	if _, err := c.Send(&l.mod); err != nil {
		l.failed++
	}
}

// learning gives packet-ins to the connection's law.
type learning struct{ Ignore }

func (learning) Up(c *Conn)                              { c.State = newLaw() }
func (learning) PacketIn(c *Conn, in *openflow.PacketIn) { c.State.(*law).step(c, in) }

// samplePacketIn is the first packet of a TCP connection, as Open vSwitch sends it.
func samplePacketIn() *openflow.PacketIn {
	frame := make([]byte, 74) // a SYN with the usual options
	copy(frame, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 60})
	frame[23] = 6
	copy(frame[26:], []byte{10, 0, 0, 2, 10, 0, 0, 1})
	return &openflow.PacketIn{
		BufferID: openflow.NoBuffer, TotalLen: uint16(len(frame)), Reason: openflow.PacketInNoMatch,
		Match: openflow.Match{openflow.InPort(2)}, Data: frame,
	}
}

// nowhere is a connection that neither reads nor writes.
type nowhere struct{ net.Conn }

func (nowhere) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (nowhere) SetReadDeadline(time.Time) error  { return nil }
func (nowhere) SetWriteDeadline(time.Time) error { return nil }
func (nowhere) Close() error                     { return nil }
