package netstack

import (
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// maxHandshakes limits the records of connections that were begun and not closed.
const maxHandshakes = 1 << 16

// handshake identifies one connection of a guest.
type handshake struct {
	remote     tcpip.Address
	remotePort uint16
	localPort  uint16
}

// synCount counts the SYNs and SYN-ACKs sent for each connection: all but the first are timeouts of the handshake,
// which netstack's own counters do not include.
type synCount struct {
	mu   sync.Mutex
	sent map[handshake]int
}

// note counts pkt if it is a SYN.
func (s *synCount) note(pkt *stack.PacketBuffer) {
	h := header.TCP(pkt.TransportHeader().Slice())
	if len(h) < header.TCPMinimumSize || !h.Flags().Contains(header.TCPFlagSyn) {
		return
	}
	k := handshake{pkt.EgressRoute.RemoteAddress, h.DestinationPort(), h.SourcePort()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent == nil {
		s.sent = map[handshake]int{}
	}
	if n, ok := s.sent[k]; ok || len(s.sent) < maxHandshakes {
		s.sent[k] = n + 1
	}
}

// timeouts returns how often a handshake timed out; -1: not known.
func (s *synCount) timeouts(k handshake) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent[k] - 1
}

// forget removes the record of a connection that is closed.
func (s *synCount) forget(k handshake) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sent, k)
}
