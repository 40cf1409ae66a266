package sim

import (
	"math/bits"
	"net/netip"

	"weir/experiment/result"
	"weir/sim/event"
	"weir/sim/network"
)

// addr returns the address of a host: 10.0.0.1 for node 0, and so on. A graph has far fewer than 2^24 nodes.
func addr(id network.NodeID) netip.Addr {
	n := uint32(id) + 1
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}

// hostAt returns the host that has an address of addr.
func hostAt(a netip.Addr) network.NodeID {
	b := a.As4()
	return network.NodeID(b[1])<<16 + network.NodeID(b[2])<<8 + network.NodeID(b[3]) - 1
}

func addrPort(id network.NodeID, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(addr(id), port)
}

// keyOf returns the key of a packet's connection, its sender first.
func keyOf(pk *network.Packet) result.Key {
	return result.Key{Proto: pk.Proto(), Src: addrPort(pk.Src(), pk.SrcPort()), Dst: addrPort(pk.Dst(), pk.DstPort())}
}

// mulDiv returns a * b / c for positive numbers whose result fits.
func mulDiv(a, b, c int64) event.Time {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return event.Time(q)
}
