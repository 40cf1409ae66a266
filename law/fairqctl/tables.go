package fairqctl

import (
	"container/list"
	"net/netip"
	"time"

	"weir/law"
	"weir/law/inventory"
)

// Limits of the tables. A connection makes room for a new one (see open). Pairs and stations are fewer than twice the connections
// and their lists of unused ones.
const (
	maxConnections = 1 << 16
	maxPairs       = 2 * maxConnections
	maxStations    = 2 * maxPairs
	maxPorts       = 1 << 16
)

// tables is what the law knows. Everything that gives actions is in slices and lists, whose order follows from the events.
type tables struct {
	ports    map[law.Port]*port
	stations map[netip.Addr]*station
	empty    *list.List // stations without pairs, the longest unused first
	pairs    map[pairKey]*pair
	every    []*pair
	granted  *list.List // pairs with flows and a grant, by the time of the grant
	unused   *list.List // pairs without flows, by the time of their last flow's end
	conns    map[ends]*connection
	byAge    *list.List // connections, by the time of their last copy
	shares   map[law.VM]*share
	most     *share // see largest; nil: not known
	guests   *inventory.Guests

	halves      map[ends]*half
	halvesByAge *list.List // by the time of their last copy
}

func newTables() tables {
	return tables{
		ports: map[law.Port]*port{}, stations: map[netip.Addr]*station{}, empty: list.New(), pairs: map[pairKey]*pair{}, granted: list.New(),
		unused: list.New(), conns: map[ends]*connection{}, byAge: list.New(), shares: map[law.VM]*share{}, guests: inventory.NewGuests(),
		halves: map[ends]*half{}, halvesByAge: list.New(),
	}
}

// port is a port of a switch.
type port struct {
	at       time.Duration // of the last update
	number   law.Port
	rate     law.Rate // C; 0: not known
	buffer   uint64   // B, bytes; 0: not known
	flows    int      // beta
	stations []*station
	waits    bool // for its next update
	updated  bool // once
}

// station is an address, and the port by which it is reached.
type station struct {
	address netip.Addr
	port    *port // nil: not known
	n       int   // in port.stations
	flows   int   // to it
	pairs   []*pair
	unused  *list.Element // in empty; nil: it has pairs
}

// pair is the flows from one address to another.
type pair struct {
	from  netip.Addr
	to    *station
	guest inventory.Guest // that has the address from
	flows int
	value uint64        // granted, bytes
	at    time.Duration // of the grant, or of the last flow's end
	in    *list.List    // granted, unused, or none
	place *list.Element
	n, of int // in every, in station.pairs
}

type pairKey struct{ from, to netip.Addr }

// ends of a connection.
type ends struct{ opener, answerer netip.AddrPort }

// connection is a connection with a flow that counts.
type connection struct {
	ends
	counts [2]bool // the opener's data, the answerer's
	heard  time.Duration
	age    *list.Element // in byAge
	of     *share
	turn   *list.Element // in of.conns
}

// first returns the first element of a list; nil: it is empty.
func first[T any](l *list.List) *T {
	if e := l.Front(); e != nil {
		return e.Value.(*T)
	}
	return nil
}

// portOf returns a port; nil: there are too many.
func (l *Law) portOf(at law.Port) *port {
	p := l.ports[at]
	if p == nil {
		if len(l.ports) >= maxPorts {
			l.counts.TooMany++
			return nil
		}
		p = &port{number: at, rate: l.p.Rate, buffer: uint64(l.p.Buffer)}
		l.ports[at] = p
	}
	return p
}

// setSwitch takes the rates and buffers that an agent reports.
func (l *Law) setSwitch(e *inventory.Switch) {
	for i := range e.Ports {
		r := &e.Ports[i]
		if r.Rate == 0 || r.BufferBytes == 0 {
			continue
		}
		if p := l.portOf(law.Port{Switch: e.At, N: r.N}); p != nil && (p.rate != r.Rate || p.buffer != r.BufferBytes) {
			p.rate, p.buffer = r.Rate, r.BufferBytes
			l.change(p)
		}
	}
}

// stationOf returns a station.
func (l *Law) stationOf(a netip.Addr) *station {
	st := l.stations[a]
	if st == nil {
		if len(l.stations) >= maxStations {
			oldest := first[station](l.empty)
			l.unplace(oldest)
			l.empty.Remove(oldest.unused)
			delete(l.stations, oldest.address)
		}
		st = &station{address: a}
		st.unused = l.empty.PushBack(st)
		l.stations[a] = st
	}
	return st
}

// place notes that an address is reached by a port. Its flows move there.
func (l *Law) place(a netip.Addr, at law.Port) {
	st, p := l.stationOf(a), l.portOf(at)
	if st.unused != nil {
		l.empty.MoveToBack(st.unused)
	}
	if st.port == p || p == nil {
		return
	}
	l.unplace(st)
	st.port, st.n = p, len(p.stations)
	p.stations = append(p.stations, st)
	if p.flows += st.flows; st.flows > 0 {
		l.change(p)
	}
}

// unplace removes a station from its port.
func (l *Law) unplace(st *station) {
	p := st.port
	if p == nil {
		return
	}
	if p.flows -= st.flows; st.flows > 0 {
		l.change(p)
	}
	p.stations, st.port = cut(p.stations, st.n, func(moved *station) { moved.n = st.n }), nil
}

// cut removes an element of a slice. The last one takes its place.
func cut[T any](s []*T, at int, moved func(*T)) []*T {
	last := len(s) - 1
	s[at] = s[last]
	moved(s[at])
	s[last] = nil
	return s[:last]
}

// pairOf returns a pair. One without flows makes room if there are too many.
func (l *Law) pairOf(from, to netip.Addr) *pair {
	k := pairKey{from, to}
	pr := l.pairs[k]
	if pr != nil {
		if pr.in == l.unused {
			l.queue(pr, nil)
		}
		return pr
	}
	if len(l.pairs) >= maxPairs {
		l.forget(first[pair](l.unused))
	}
	st := l.stationOf(to)
	if st.unused != nil {
		l.empty.Remove(st.unused)
		st.unused = nil
	}
	pr = &pair{from: from, to: st, guest: l.guests.Of(from), n: len(l.every), of: len(st.pairs)}
	l.pairs[k], l.every, st.pairs = pr, append(l.every, pr), append(st.pairs, pr)
	return pr
}

// forget removes a pair without flows.
func (l *Law) forget(pr *pair) {
	l.queue(pr, nil)
	delete(l.pairs, pairKey{pr.from, pr.to.address})
	l.every = cut(l.every, pr.n, func(moved *pair) { moved.n = pr.n })
	st := pr.to
	if st.pairs = cut(st.pairs, pr.of, func(moved *pair) { moved.of = pr.of }); len(st.pairs) == 0 {
		st.unused = l.empty.PushBack(st)
	}
}

// setHost replaces the addresses of a host's VMs, and grants there what holds for them now: the host may have restarted.
func (l *Law) setHost(h law.Host, vms []inventory.VM) {
	l.guests.Set(h, vms)
	for _, pr := range l.every {
		now := l.guests.Of(pr.from)
		if now == pr.guest && now.Host != h {
			continue
		}
		if pr.guest = now; pr.flows > 0 {
			l.limit(pr, true)
		}
	}
}
