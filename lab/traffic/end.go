package traffic

import (
	"errors"
	"io"
	"net/netip"
)

// A flow's code does not know whose TCP carries it. What it needs of one are the three interfaces
// here; kernel sockets (socket.go, dial.go, listen.go) and netstack (foreign.go) have them.

// end is one end of a TCP connection. One goroutine at a time may read, and one write.
type end interface {
	// Write waits until all of p is taken. After StopWriting it is os.ErrDeadlineExceeded.
	Write(p []byte) (int, error)
	// Discard waits for data and throws away at most want bytes of it; io.EOF when the peer has
	// closed.
	Discard(want int) (int, error)
	// StopWriting wakes whoever writes; who will write fails.
	StopWriting()
	// CloseWrite says that nothing more will be sent.
	CloseWrite()
	// Timeouts is the number of RTO events of this end so far, also after Close; -1: not known.
	Timeouts() int
	// Close ends the connection in the normal way (FIN).
	Close()
	// Abort ends the connection with a reset and wakes whoever reads or writes.
	Abort()
}

// opener opens connections from one place.
type opener interface {
	// prepare makes ready what n connections need that are opened at once.
	prepare(n int) error
	// open begins a connection and does not wait for the answer. It gives the client's address and
	// the moment just before the SYN.
	open(r *runner, to netip.AddrPort) (opened, error)
	close()
}

// opened is a connection's client end, whose SYN is under way.
type opened struct {
	end   end
	local netip.AddrPort
	start int64 // CLOCK_MONOTONIC, ns
}

// acceptor accepts connections to one address.
type acceptor interface {
	// accept hands over what comes until the acceptor is closed. An error is one of the machine.
	accept(arrived func(client netip.AddrPort, e end)) error
	address() netip.AddrPort
	close()
}

// newOpener and newAcceptor choose by whose TCP a place has.
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

// discardAll throws away exactly n bytes.
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

// drain throws data away until the peer closes.
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
