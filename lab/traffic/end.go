package traffic

import (
	"errors"
	"io"
	"net/netip"
)

// The code of a flow does not depend on the TCP implementation. It uses the three interfaces here; kernel sockets
// (socket.go, dial.go, listen.go) and netstack (foreign.go) implement them.

// end is one end of a TCP connection. At most one goroutine may read, and one write.
type end interface {
	// Write waits until all of p is accepted. After StopWriting it returns os.ErrDeadlineExceeded.
	Write(p []byte) (int, error)
	// Discard waits for data and discards at most want bytes of it; io.EOF when the peer has closed.
	Discard(want int) (int, error)
	// StopWriting ends a write in progress; later writes fail.
	StopWriting()
	// CloseWrite ends the sending direction (FIN).
	CloseWrite()
	// counts returns what TCP counted at this end so far, also after Close.
	counts() counts
	// Close ends the connection in the normal way (FIN).
	Close()
	// Abort ends the connection with a reset and wakes its reader and writer.
	Abort()
}

// opener opens connections from one place.
type opener interface {
	// prepare gets ready for n connections that are opened at once.
	prepare(n int) error
	// open begins a connection without waiting for the answer. It returns the client's address and the time just
	// before the SYN.
	open(r *runner, to netip.AddrPort) (opened, error)
	close()
}

// opened is a connection's client end, after its SYN was sent.
type opened struct {
	end   end
	local netip.AddrPort
	start int64 // CLOCK_MONOTONIC, ns
}

// acceptor accepts connections to one address.
type acceptor interface {
	// accept passes arriving connections to arrived until the acceptor is closed. An error is one of the machine.
	accept(arrived func(client netip.AddrPort, e end)) error
	address() netip.AddrPort
	close()
}

// newOpener and newAcceptor select the implementation by the TCP of a place.
func newOpener(net Net, p place, addr netip.Addr) opener {
	if guest := net.Guest(p.node, p.profile); guest != nil {
		return &foreignOpener{guest: guest}
	}
	return &dialer{net: net, place: p, addr: addr}
}

func newAcceptor(net Net, p place, addr netip.AddrPort) (acceptor, error) {
	if guest := net.Guest(p.node, p.profile); guest != nil {
		return newForeignAcceptor(guest, addr)
	}
	return newKernelAcceptor(net, p.node, addr)
}

// discardAll discards exactly n bytes.
func discardAll(e end, n int) error {
	for n > 0 {
		got, err := e.Discard(n)
		if err != nil {
			return err
		}
		n -= got
	}
	return nil
}

// drain discards data until the peer closes.
func drain(e end) error {
	for {
		if _, err := e.Discard(maxRead); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}
