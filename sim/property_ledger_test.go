package sim

import (
	"fmt"
	"slices"

	"weir/experiment"
	"weir/law"
	"weir/law/fairq"
	"weir/sim/event"
	"weir/sim/network"
	"weir/sim/tcp"
)

// ledger follows every packet of a run from the host that sends it to its end, and checks ports and endpoints now and
// then. It changes nothing.
type ledger struct {
	s       *simulation
	tb      *troubles
	tally   *tally
	sink    network.Sink
	guards  *guarded // nil: there is no guard
	clock   event.Time
	inside  map[*network.Packet]passing // TCP's
	talks   []*talk                     // by Packet.Conn; nil: no such connection now
	before  []network.Counters          // by port, as the run began
	last    []network.Counters          // as of the last look
	arrived []network.Count             // by port: arrived at its end, or was lost there
	nics    []*network.Port             // of hosts
	fairq   *fairq.Params               // the switches may narrow windows; nil: they have no FairQ
	sampled uint64                      // ports with FairQ

	mostEvents uint64 // without samples; more are taken for a run that does not end

	sent, datagrams           network.Count // that hosts sent of TCP; that came or were dropped of UDP
	delivered, dropped, loose network.Count // of both; loose: packets of TCP that are inside
}

// passing is a packet on its way.
type passing struct {
	talk   *talk
	was    network.Packet
	spoken network.Packet // as its host sent it, if there is a guard
}

// newLedger sets all hooks of a run. It still calls the functions that were set before.
func newLedger(s *simulation, tb *troubles, tl *tally, r *experiment.Run) *ledger {
	l := &ledger{s: s, tb: tb, tally: tl, sink: s.net.Sink, clock: s.queue.Now(), inside: map[*network.Packet]passing{}, mostEvents: mostEvents}
	if slices.Contains(r.Laws, "fairq") {
		params, err := law.Params[fairq.Params](r.Params, "fairq")
		if err != nil {
			panic(err)
		}
		l.fairq, l.sampled = &params, uint64(len(s.net.SwitchPorts(r.At)))
	}
	for _, p := range s.net.Ports {
		l.before = append(l.before, p.Counters())
	}
	l.last = append(l.last, l.before...)
	l.arrived = make([]network.Count, len(s.net.Ports))
	for i, n := range s.cfg.Graph.Nodes {
		if n.Kind == experiment.Guest {
			l.nics = append(l.nics, s.net.HostPort(network.NodeID(i)))
		}
	}
	s.net.Sink = l
	if guards := s.net.Guards(); len(guards) > 0 {
		l.guards = &guarded{ledger: l}
		s.net.SetGuards(append(append([]network.Guard{l.guards}, guards...), &wired{l.guards})...)
	}
	onDrop, lose, onEnd := s.net.OnDrop, tb.lose, s.stack.OnEnd
	s.net.OnDrop = func(p *network.Port, pk *network.Packet, reason network.DropReason, now event.Time) {
		l.drops(p, pk, reason, now)
		onDrop(p, pk, reason, now)
	}
	s.net.Loss(func(p *network.Port, pk *network.Packet) bool {
		l.see(s.queue.Now())
		count(&l.arrived[p.ID], pk)
		return lose(p, pk)
	})
	// Packets of a host are seen when its port accepts or drops them. (With Stack.Wire the stack would not know its
	// NIC.)
	for _, p := range l.nics {
		p.Tap(func(pk *network.Packet, _ event.Time) {
			l.sends(p.Node, pk)
			if tb.respray(pk) {
				l.tally.Sprayed++
			}
		})
	}
	s.stack.OnEnd = func(e *tcp.Endpoint) {
		l.ends(e)
		if onEnd != nil {
			onEnd(e)
		}
	}
	return l
}

func count(c *network.Count, pk *network.Packet) {
	c.Packets++
	c.Bytes += int64(pk.Bytes())
}

// see checks the clock.
func (l *ledger) see(now event.Time) {
	if now < l.clock || now != l.s.queue.Now() {
		broken("it is %d ns after %d ns, and the clock says %d ns", now, l.clock, l.s.queue.Now())
	}
	l.clock = now
}

// sends is called for each packet that a host sends.
func (l *ledger) sends(from network.NodeID, pk *network.Packet) {
	l.see(l.s.queue.Now())
	if from != pk.Src() {
		broken("node %d sends a packet of node %d", from, pk.Src())
	}
	if pk.Proto() == network.UDP {
		return
	}
	if _, twice := l.inside[pk]; twice {
		broken("a packet is sent that is under way: %s", text(pk))
	}
	if options := pk.Bytes() - pk.Payload() - network.HeaderBytes; pk.Payload() < 0 || options < 0 || options > 40 || options%4 != 0 {
		broken("a packet of %d bytes has %d of options: %s", pk.Bytes(), options, text(pk))
	}
	l.tally.Packets++
	count(&l.sent, pk)
	count(&l.loose, pk)
	k := l.talk(pk)
	p := passing{talk: k, was: *pk}
	if l.guards != nil {
		p.spoken = l.guards.spoken
	} else {
		k.sent(pk, l.tally)
	}
	l.inside[pk] = p
}

// talk returns the connection of a packet that is about to leave; a SYN begins one.
func (l *ledger) talk(pk *network.Packet) *talk {
	for int(pk.Conn()) >= len(l.talks) {
		l.talks = append(l.talks, nil)
	}
	k := l.talks[pk.Conn()]
	if k == nil {
		if pk.Flags()&(network.SYN|network.ACK) != network.SYN || !pk.ToAcceptor() {
			broken("a packet of a connection that does not exist: %s", text(pk))
		}
		l.tally.Connections++
		k = newTalk(pk)
		l.talks[pk.Conn()] = k
	}
	return k
}

// take ends a packet's way, and checks that it is unchanged. Allowed changes are a mark, its path, and with FairQ a
// smaller window of an acknowledgement, or that of talk.keeps. A packet that is lost on its way may still have the edge's
// flag.
func (l *ledger) take(pk *network.Packet, lost bool) passing {
	p, ok := l.inside[pk]
	if !ok {
		broken("a packet comes from nowhere, or a second time: %s", text(pk))
	}
	delete(l.inside, pk)
	l.loose.Packets--
	l.loose.Bytes -= int64(pk.Bytes())
	now := *pk
	if now.ECN() != p.was.ECN() {
		if now.ECN() != network.CE || p.was.ECN() == network.NotECT {
			broken("ECN %d became %d: %s", p.was.ECN(), now.ECN(), text(pk))
		}
		l.tally.Marked++
	}
	now.SetECN(p.was.ECN())
	now.SetHash(p.was.Hash())
	switch {
	case l.fairq == nil || now.Flags()&network.ACK == 0:
	case now.Window() < p.was.Window():
		now.SetWindow(p.was.Window())
		l.tally.Narrowed++
	case now.Window() > p.was.Window() && l.fairq.Edge && l.fairq.Shrink == "avoid" && p.talk.keeps(pk):
		now.SetWindow(p.was.Window())
	}
	if l.fairq != nil && lost && now.Reserved() != p.was.Reserved() {
		now.SetReserved(p.was.Reserved())
		l.tally.Flagged++
	}
	if now != p.was {
		broken("a packet was changed on its way: %s became %s", text(&p.was), text(pk))
	}
	return p
}

// Deliver implements network.Sink.
func (l *ledger) Deliver(host network.NodeID, pk *network.Packet, now event.Time) {
	l.see(now)
	if host != pk.Dst() {
		broken("node %d gets a packet for node %d", host, pk.Dst())
	}
	if l.guards != nil && pk.Proto() == network.TCP {
		l.sink.Deliver(host, pk, now) // guarded has seen it
		return
	}
	count(&l.delivered, pk)
	if pk.Proto() == network.UDP {
		l.tally.Datagrams++
		count(&l.datagrams, pk)
	} else {
		l.take(pk, false).talk.delivered(pk)
	}
	l.sink.Deliver(host, pk, now)
}

func (l *ledger) drops(p *network.Port, pk *network.Packet, reason network.DropReason, now event.Time) {
	l.see(now)
	if _, seen := l.inside[pk]; !seen && p.Node == pk.Src() { // its own host's port has no room for it
		l.sends(p.Node, pk)
	}
	count(&l.dropped, pk)
	if pk.Proto() == network.UDP {
		count(&l.datagrams, pk)
	} else if k := l.take(pk, true).talk; k.reset { // the RST, or the challenge that asks for it again (RFC 5961)
		k.resetLost = true
	}
	switch reason {
	case network.DropTail:
		l.tally.TailDrops++
	case network.DropLaw:
		if l.guards != nil && p.Node == pk.Src() {
			broken("the guard drops what a guest sends: %s", text(pk)) // no guest here sends beyond what it was granted
		}
		l.tally.LawDrops++
	case network.DropDown:
		l.tally.DownDrops++
	case network.DropLoss:
		l.tally.Lost++
	}
}

// look checks everything that must be true at any time.
func (l *ledger) look() {
	l.see(l.s.queue.Now())
	l.tally.Looks++
	if l.guards != nil {
		l.guards.passed()
	}
	inPorts := network.Count{}
	for i, p := range l.s.net.Ports {
		c := p.Counters()
		checkPort(p, &c, &l.last[i])
		l.last[i] = c
		inPorts.Packets += c.Queued.Packets + c.Sent.Packets - l.before[i].Sent.Packets - l.arrived[i].Packets
		inPorts.Bytes += c.Queued.Bytes + c.Sent.Bytes - l.before[i].Sent.Bytes - l.arrived[i].Bytes
		if c.Queued.Packets > 1 {
			l.tally.LongestQueue = max(l.tally.LongestQueue, c.Queued.Packets)
		}
	}
	sent := network.Count{}
	for _, p := range l.nics {
		sent.Packets += l.last[p.ID].In.Packets - l.before[p.ID].In.Packets
		sent.Bytes += l.last[p.ID].In.Bytes - l.before[p.ID].In.Bytes
	}
	if sent.Packets != l.delivered.Packets+l.dropped.Packets+inPorts.Packets || sent.Bytes != l.delivered.Bytes+l.dropped.Bytes+inPorts.Bytes {
		broken("hosts sent %+v: delivered %+v, dropped %+v, queued or in flight %+v", sent, l.delivered, l.dropped, inPorts)
	}
	if borrowed := l.s.net.Borrowed(); borrowed != inPorts.Packets {
		broken("%d packets are outside the pool, %d in ports and on lines", borrowed, inPorts.Packets)
	}
	datagrams := network.Count{Packets: sent.Packets - l.sent.Packets, Bytes: sent.Bytes - l.sent.Bytes}
	if n := datagrams.Packets - l.datagrams.Packets + l.loose.Packets; n != inPorts.Packets || int64(len(l.inside)) != l.loose.Packets {
		broken("%d packets are under way by connection, %d by port", n, inPorts.Packets)
	}
	l.lookAtEnds()
}

// checkPort checks one port, also against its previous counters.
func checkPort(p *network.Port, c, last *network.Counters) {
	in := network.Count{
		Packets: c.Sent.Packets + c.Tail.Packets + c.Law.Packets + c.Down.Packets + c.Queued.Packets + c.Taken.Packets,
		Bytes:   c.Sent.Bytes + c.Tail.Bytes + c.Law.Bytes + c.Down.Bytes + c.Queued.Bytes + c.Taken.Bytes,
	}
	if in != c.In {
		broken("%s: %+v are accounted for in %+v", p.Name, in, *c)
	}
	queued := c.Queued.Bytes
	if p.Buffer.Packets {
		queued = c.Queued.Packets
	}
	if c.Queued.Bytes < 0 || c.Queued.Packets < 0 || queued > p.Buffer.N || (c.Queued.Bytes == 0) != (c.Queued.Packets == 0) {
		broken("%s holds %+v, its buffer is %v", p.Name, c.Queued, p.Buffer)
	}
	if c.In.Packets < last.In.Packets || c.Sent.Packets < last.Sent.Packets || c.Sent.Bytes < last.Sent.Bytes ||
		c.Lost.Packets < last.Lost.Packets || c.Lost.Packets > c.Sent.Packets || c.Marks < last.Marks {
		broken("%s: %+v after %+v", p.Name, *c, *last)
	}
}

// lookAtEnds checks the endpoints that programs know or have known.
func (l *ledger) lookAtEnds() {
	for _, c := range l.tb.talkers {
		for side := range c.ends {
			if p := &c.ends[side]; p.lives() && l.talks[c.index] != nil {
				l.talks[c.index].known[side] = p.e
			}
		}
	}
	for i, k := range l.talks {
		if k == nil {
			continue
		}
		if i < len(l.s.traffic.conns) && l.s.traffic.conns[i] != nil {
			c := l.s.traffic.conns[i]
			k.known[0], k.known[1] = c.client, c.server
		}
		for _, e := range k.known {
			if e != nil {
				k.check(e)
			}
		}
	}
}

// programs checks that no program keeps an endpoint that is used for another connection.
func (l *ledger) programs() {
	for _, c := range l.s.traffic.conns {
		if c != nil && (c.clientUp && c.client.Index() != c.index || c.serverUp && c.server.Index() != c.index) {
			broken("the programs of connection %d have the endpoint of another one", c.index)
		}
	}
}

// ends is called for an endpoint whose connection is over.
func (l *ledger) ends(e *tcp.Endpoint) {
	i := e.Index()
	c := e.Counters()
	l.tally.Retransmitted += c.Retransmitted
	l.tally.Timeouts += c.Timeouts
	l.tally.SYNTimeouts += c.SYNTimeouts
	l.tally.FastRetransmits += c.FastRetransmits
	l.tally.OutOfOrder += c.OutOfOrder
	l.tally.WindowProbes += c.Persists
	l.tally.Marks += c.Marks
	k := l.talks[i]
	if k == nil {
		broken("connection %d ended, which there was not: %s", i, describe(e))
	}
	k.over(e)
	if k.ended++; k.ended == 2 || !k.way[1].known { // the second end of a connection, or nobody accepted
		l.talks[i] = nil
	}
}

// quiet checks that nothing is left when all is over. Ends whose peer has aborted and whose RST was lost may be left:
// they have nothing to send and wait for ever, as TCP without keep-alive does.
func (l *ledger) quiet() {
	left := l.s.stack.Open()
	for _, k := range l.talks {
		switch {
		case k == nil:
		case k.resetLost:
			left--
			l.tally.HalfOpen++
		default:
			text := ""
			for _, e := range k.known {
				if e != nil {
					text += "\n" + describe(e)
				}
			}
			for _, c := range l.tb.talkers {
				if c.index == k.index {
					text += fmt.Sprintf("\nchat: %+v", c.ends)
				}
			}
			broken("connection %d never ended: %+v%s", k.index, *k, text)
		}
	}
	if left != 0 {
		broken("%d connections never ended, and sent nothing", left)
	}
	for _, c := range l.tb.talkers {
		c.over()
	}
	l.tally.Chats += int64(len(l.tb.talkers))
	l.tally.Acked += l.tb.acked
	if n := l.s.net.Borrowed(); n != 0 || len(l.inside) != 0 {
		broken("%d packets are still outside the pool, %d of them of TCP", n, len(l.inside))
	}
}
