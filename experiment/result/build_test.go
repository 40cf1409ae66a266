package result

import (
	"net/netip"
	"time"
)

const ms = time.Millisecond

func tcpKey(host, port int) Key {
	return Key{6, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(host)}), uint16(port)), netip.MustParseAddrPort("10.0.1.100:80")}
}

func udpKey(host, port int) Key {
	k := tcpKey(host, port)
	k.Proto = udp
	return k
}
