//go:build cgo

package laws

import (
	"math"

	"weir/datapath/native"
	"weir/sim/event"
	"weir/sim/network"
)

const (
	liveEpochs = 4 // that a direction counts for after it last sent (core/fairq/seats.h)
	// mostRest is the longest that the timer rests while nothing waits.
	mostRest = 4 * event.Millisecond
	// looksEvery is how many packets pass between two looks whether one shall sample in the timer's place.
	looksEvery = 16
)

// fairQPort is FairQ at one port. What it counts, grants and releases is core's; here are its timer and what packets did.
//
// Its timer runs while it has flows. It samples the queue every interval; while nothing waits it rests for an
// update's time, and packets that come meanwhile sample in its place. A sample stands for the time since the one
// before it, so the law is the same.
type fairQPort struct {
	sw    *fairQSwitch
	port  *network.Port
	id    uint16 // in the switch, and 1
	state *native.Port
	tick  event.Time
	rest  event.Time // while nothing waits

	known known

	resting bool // the timer does
	timer   event.Event
	samples uint64

	// Packets that left here. An ACK of a connection in the table is one of rewritten, smaller, ungoverned and left.
	seen, rewritten, smaller, ungoverned, left, unknown uint64
	told                                                uint64 // edge mode: of all but the left ones, those that tell a window
	opened, refused                                     uint64 // connections, from here
	owned                                               int    // connections in the table that were opened from behind this port
}

// newFairQPort puts the law on the next port of a switch. epoch is in ns: a direction counts for 3 to 4 of them.
func newFairQPort(sw *fairQSwitch, p *network.Port, c native.FairQConfig, epoch event.Time) *fairQPort {
	q := &fairQPort{
		sw: sw, port: p, id: uint16(len(sw.ports) + 1),
		tick: event.Time(c.TickNs), rest: max(event.Time(c.TickNs), min(event.Time(c.PeriodNs), mostRest)),
	}
	q.state = sw.state.Configure(len(sw.ports), native.PortConfig{
		Law: c, EpochNs: uint64(epoch), IdleNs: uint64(sw.idle), MSSUnknown: mostMSS, Divisor: sw.divisor,
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

// sample is the timer's work. It says whether the timer is to go on.
func (q *fairQPort) sample(now event.Time) bool {
	q.samples++
	q.state.Tick(uint64(now), uint32(min(q.port.Backlog(), math.MaxUint32)))
	return q.state.Running != 0
}

// takeTimersPlace samples with a packet where the timer rests and the law says that it is late.
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
