//go:build cgo

package laws

import (
	"math"

	"weir/datapath/native"
	"weir/sim/event"
	"weir/sim/network"
)

const (
	activeEpochs = 4 // epochs for which a direction counts after it last sent (core/fairq/slots.h)
	// mostRest is the longest that the timer rests while the queue is empty.
	mostRest = 4 * event.Millisecond
	// looksEvery: while the timer rests, every 16th packet checks whether a sample is due.
	looksEvery = 16
)

// fairQPort is FairQ at one port. Core counts, grants and releases; the code here has the timer, and counts what
// packets did.
//
// The timer runs while the port has flows. It samples the queue every interval. While the queue is empty it rests for
// the time of one update, and packets that come meanwhile sample in its place. A sample stands for the time since the
// one before it, so the law is the same.
type fairQPort struct {
	sw    *fairQSwitch
	port  *network.Port
	id    uint16 // number of the port in its switch, from 1
	state *native.Port
	tick  event.Time
	rest  event.Time // rest of the timer while the queue is empty

	known   known
	credits *credits // nil: no promises and no credits

	resting bool // the timer rests
	timer   event.Event
	samples uint64 // by the timer and by packets
	ticks   uint64 // of them by the timer

	// Packets that left here. Each ACK of a connection in the table counts as one of rewritten, smaller, ungoverned and
	// left.
	seen, rewritten, smaller, ungoverned, left, unknown uint64
	advertised                                          uint64 // edge mode: ACKs that advertise a window, of those that are not left
	opened, refused                                     uint64 // connections opened from here
	owned                                               int    // connections in the table that were opened from behind this port
}

// newFairQPort puts the law on the next port of a switch. epoch is in ns; a direction counts for 3 to 4 epochs.
func newFairQPort(sw *fairQSwitch, p *network.Port, c native.FairQConfig, epoch event.Time, pipe uint32) *fairQPort {
	q := &fairQPort{
		sw: sw, port: p, id: uint16(len(sw.ports) + 1),
		tick: event.Time(c.TickNs), rest: max(event.Time(c.TickNs), min(event.Time(c.PeriodNs), mostRest)),
	}
	q.state = sw.state.Configure(len(sw.ports), native.PortConfig{
		Law: c, EpochNs: uint64(epoch), IdleNs: uint64(sw.idle), MSSUnknown: mostMSS, Divisor: sw.divisor, Credit: sw.credit, PipeBytes: pipe,
	}, uint64(sw.queue.Now()))
	if c.Variant != native.VariantAlg1 { // its mean is of samples T apart
		q.rest = q.tick
	}
	q.timer.Init(q)
	sw.ports = append(sw.ports, q)
	return q
}

// Happen is the timer.
func (q *fairQPort) Happen(_ *event.Event, now event.Time) {
	q.ticks++
	if !q.sample(now) {
		q.resting = false
		return
	}
	next := q.tick
	if q.resting = q.state.Backlog == 0 && q.rest > q.tick; q.resting {
		next = q.rest
	}
	q.sw.queue.Set(&q.timer, now+next)
}

// sample takes a sample, and reports whether the timer must go on.
func (q *fairQPort) sample(now event.Time) bool {
	q.samples++
	q.state.Tick(uint64(now), uint32(min(q.port.Backlog(), math.MaxUint32)))
	return q.state.Running != 0
}

// takeTimersPlace takes a sample with a packet, if the timer rests and the law says that a sample is due.
func (q *fairQPort) takeTimersPlace(now event.Time) {
	if q.seen%looksEvery == 0 && q.sw.state.PacketMaySample(int(q.id)-1, uint64(now)) {
		q.sample(now)
	}
}

// start starts the timer.
func (q *fairQPort) start(now event.Time) {
	q.resting = false
	q.sw.queue.Set(&q.timer, now+q.tick)
}
