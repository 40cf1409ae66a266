package traffic

import (
	"net/netip"
	"testing"
)

// fakeEnd is an end that only closes.
type fakeEnd struct {
	end
	closed bool
}

func (e *fakeEnd) Close() { e.closed = true }
func (e *fakeEnd) Abort() { e.closed = true }

// noAcceptor accepts nothing.
type noAcceptor struct{ acceptor }

func (noAcceptor) address() netip.AddrPort { return netip.AddrPort{} }

// An end whose client gave up before it was accepted is not given to a later connection with the same address.
func TestListener_AddressUsedAgain(t *testing.T) {
	r := &runner{clock: newClock()}
	l := newListener(noAcceptor{}, r.clock)
	address := netip.MustParseAddrPort("10.0.1.1:12345")
	old, again := &conn{r: r, local: address, dead: true}, &conn{r: r, local: address, dead: true}
	l.expect(old, r.clock.now())
	l.forget(old)
	stale, fresh := &fakeEnd{}, &fakeEnd{}
	l.arrived(address, stale)
	l.expect(again, r.clock.now()+1)
	if met := r.met.Load(); met != 0 || !stale.closed || l.expected[address] != again {
		t.Errorf("%d connections got the end of the earlier one, which is closed: %v", met, stale.closed)
	}
	l.arrived(address, fresh)
	if met := r.met.Load(); met != 1 || len(l.expected)+len(l.early) != 0 {
		t.Errorf("%d connections have their own end, want 1", met)
	}
}

// An end that is accepted before its client has registered is that client's.
func TestListener_AcceptedFirst(t *testing.T) {
	r := &runner{clock: newClock()}
	l := newListener(noAcceptor{}, r.clock)
	c := &conn{r: r, local: netip.MustParseAddrPort("10.0.1.1:12345"), dead: true}
	start := r.clock.now()
	l.arrived(c.local, &fakeEnd{})
	l.expect(c, start)
	if met := r.met.Load(); met != 1 || len(l.expected)+len(l.early) != 0 {
		t.Errorf("%d connections have their end, want 1", met)
	}
}
