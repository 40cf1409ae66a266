package sed

import (
	"cmp"
	"slices"
	"time"

	"weir/law"
	"weir/law/flows"
)

// leastIdle is how long a flow counts that may send and does not. When it sends again, that is reported.
const leastIdle = 2 * time.Millisecond

// Limits of the tables. Further flows have no windows. A VM that has more flows than its part keeps those that came first, so that
// it cannot take the places of others.
const (
	maxPorts   = 1 << 16
	maxFlows   = 1 << 16
	maxOfVM    = 1 << 12 // also of all sources together that are no VM's, which is VM 0
	maxPortsOf = 8       // of a flow
)

// port is the state of a port of a switch.
type port struct {
	at        law.Port
	rate      float64 // C, bytes a second; 0: not known, and there are no windows
	queue     Port    // its state by the reports of queues; none come if the switch decides
	congested bool    // by its queue
	crowded   bool    // by flows that may begin
	flows     []*flow // in the order in which they came
	turn      int     // of the flows without deadline, where the first share begins
}

// limits reports whether the port's flows have windows.
func (p *port) limits() bool { return p.congested || p.crowded }

// flow is a row of the table (GIF), with what it was granted last.
type flow struct {
	key    law.Flow
	vm     law.VM // that it counts for; 0: not known
	places []place

	sent    uint64        // bytes, at the port that saw most
	sentAt  time.Duration // when sent rose last, or it was paused or no more
	pace    float64       // bytes a second until then
	message message
	// counted: it began while it had a row, or a port reported what it had sent. A row that was removed because its connection was
	// silent comes back without.
	counted bool
	// admitted: the last allocation found that its deadline can be met.
	admitted bool

	granted   uint64 // bytes; noLimit: none
	paused    bool
	grantedAt time.Duration
}

// place is a flow at a port.
type place struct {
	at     *port
	window int64 // bytes; 0: paused; free: the port does not limit it
}

const free = int64(-1)

// message is what the application declared (Deadline, Flow_size). SE-2: a flag says that there is a deadline, because a remaining
// time of 0 is one that has passed.
type message struct {
	hasDeadline bool
	deadline    time.Duration // on the law's clock
	from        uint64        // flow.sent when it was declared
	bytes       uint64        // 0: not known
	value       float64       // compared with other messages
	number      uint64        // of the declaration; 0: none
}

// left returns the bytes that a flow still has to send (RSize). If the application does not say, it is as much as was sent: of flows
// with heavy tails those go on longest that have sent most.
func (f *flow) left() float64 {
	sent := f.sent - min(f.message.from, f.sent)
	if f.message.bytes == 0 {
		return float64(max(sent, segmentBytes))
	}
	return max(float64(f.message.bytes)-float64(sent), 0)
}

// urgent reports whether a flow has a deadline that is still ahead.
func (f *flow) urgent(now time.Duration) bool {
	m := &f.message
	return m.hasDeadline && now < m.deadline && (m.bytes == 0 || f.sent-min(m.from, f.sent) < m.bytes || f.sent == m.from)
}

// unseen notes that no port reports a flow. The rest of its message begins at the next report: the agent's counts may begin at 0 again.
func (f *flow) unseen() {
	m := &f.message
	if m.bytes > 0 {
		m.bytes -= min(f.sent-min(m.from, f.sent), m.bytes-1)
	}
	m.from, f.counted = f.sent, false
}

// portOf returns a port's state; nil: there are too many.
func (l *Law) portOf(at law.Port) *port {
	p := l.ports[at]
	if p == nil {
		if len(l.ports) >= maxPorts {
			l.counts.TooMany++
			return nil
		}
		p = &port{at: at, queue: NewPort(&l.p)}
		l.ports[at] = p
		l.switches[at.Switch] = append(l.switches[at.Switch], p)
	}
	return p
}

// flowOf returns the row of a flow; nil: there are too many.
func (l *Law) flowOf(now time.Duration, key law.Flow) *flow {
	f := l.flows[key]
	if f != nil {
		return f
	}
	vm := l.guests.Of(key.Src.Addr()).VM
	if len(l.flows) >= maxFlows || l.ofVM[vm] >= maxOfVM {
		l.counts.TooMany++
		return nil
	}
	f = &flow{key: key, vm: vm, sentAt: now, granted: noLimit}
	l.flows[key] = f
	l.ofVM[vm]++
	return f
}

// place notes that a flow leaves by a port.
func (l *Law) place(f *flow, at *port) {
	if at == nil || slices.ContainsFunc(f.places, func(p place) bool { return p.at == at }) || len(f.places) == maxPortsOf {
		return
	}
	f.places = append(f.places, place{at, free})
	at.flows = append(at.flows, f)
}

// window returns what a port gives a flow.
func (f *flow) window(at *port) *int64 {
	for i := range f.places {
		if f.places[i].at == at {
			return &f.places[i].window
		}
	}
	panic("sed: a port has a flow that is not there")
}

// declare takes what an application says. A message of the past has no deadline any more. The same declaration again changes nothing:
// it does not say how much of the message was sent meanwhile.
func (l *Law) declare(now time.Duration, e *flows.Declared) *flow {
	l.sweep(now)
	if l.flows[e.Flow] == nil && e.Left == 0 && e.Bytes == 0 {
		return nil // the flow has ended, and its message has no deadline any more: no row is needed
	}
	f := l.flowOf(now, e.Flow)
	if f == nil || e.Number != 0 && e.Number == f.message.number {
		return nil
	}
	l.counts.Declared++
	f.message = message{
		hasDeadline: e.Left > 0, deadline: now + e.Left, from: f.sent, bytes: e.Bytes, value: float64(max(e.Value, 1)), number: e.Number,
	}
	f.sentAt, f.admitted = now, false
	return f
}

// end removes a flow.
func (l *Law) end(f *flow) {
	for i := range f.places {
		at := f.places[i].at
		at.flows = slices.DeleteFunc(at.flows, func(o *flow) bool { return o == f })
	}
	delete(l.flows, f.key)
	delete(l.windows, f.key)
	l.leave(f.vm)
}

// leave takes a flow from a VM's count.
func (l *Law) leave(vm law.VM) {
	if l.ofVM[vm]--; l.ofVM[vm] == 0 {
		delete(l.ofVM, vm)
	}
}

// sweep removes, each second, the flows that sent nothing for so long that they have no windows. It also removes flows that were declared
// and that no port has seen.
func (l *Law) sweep(now time.Duration) {
	if now-l.swept < time.Second {
		return
	}
	l.swept = now
	for _, f := range l.flows {
		if f.idle(now, time.Second) && !f.urgent(now) {
			l.end(f)
		}
	}
}

// idle reports whether a flow may send and did not for a time.
func (f *flow) idle(now, after time.Duration) bool { return !f.paused && now-f.sentAt >= after }

// idleAfter returns how long a flow of a port may be without progress before it is idle: l.idle, and at least two round trips with the
// queue at K. A flow with a window of one segment progresses once in a round trip, and the queue is most of that at a slow port. If such a
// flow were taken for idle, it would keep that window. The port's rate must be known.
func (l *Law) idleAfter(at *port) time.Duration {
	trip := l.rtt + float64(l.p.Threshold.Bytes())/at.rate
	return max(l.idle, time.Duration(2*trip*float64(time.Second)))
}

// byDeadline orders flows by deadline, and equal ones as they came.
func byDeadline(a, b demand) int { return cmp.Compare(a.f.message.deadline, b.f.message.deadline) }
