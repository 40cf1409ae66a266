//go:build cgo

package laws

import (
	"math"

	"weir/datapath/native"
	"weir/sim/event"
	"weir/sim/network"
)

const (
	liveEpochs  = 4 // that a seat counts for
	wheelEpochs = 8 // a power of 2 above it: whoever sits in an epoch that just ended is still found there
	// mostRest is the longest that the timer rests while nothing waits.
	mostRest = 4 * event.Millisecond
	// looksEvery is how many packets pass between two looks whether one shall sample in the timer's place.
	looksEvery = 16
)

// fairQPort is FairQ at one port: datapath/bpf/fairq/port.h and seats.h.
//
// Its timer runs while it has flows. It samples the queue every interval; while nothing waits it rests for an
// update's time, and packets that come meanwhile sample in its place. A sample stands for the time since the one
// before it, so the law is the same.
//
// Counting active flows: a direction of a connection has a seat, the port and the epoch in which it last sent there, and
// counts until liveEpochs have passed without data. The port keeps how many sit in each epoch.
type fairQPort struct {
	sw     *fairQSwitch
	port   *network.Port
	law    *native.FairQ
	tick   event.Time
	rest   event.Time // while nothing waits
	length event.Time // of an epoch

	grantQ8 uint64 // what ACKs of its data are held to, as core's window_q8; 0: nothing
	asked   native.WindowAck
	answer  uint16 // to asked

	epoch      uint64
	epochBegan event.Time
	wheel      [wheelEpochs]uint32 // directions, by the epoch they sit in
	opening    [wheelEpochs]uint32 // count: opening: directions of open handshakes, by the epoch of their SYN-ACK
	registered uint32              // count: handshake
	generation uint32              // of the register, from 1
	dataAt     event.Time          // when a sample last found dataSeen
	owned      int                 // connections in the table that were opened from behind this port
	dataSeen   bool
	running    bool // the timer
	resting    bool // it does
	timer      event.Event
	backlog    int64 // at the last sample
	samples    uint64

	// Packets that left here. An ACK of a connection in the table is one of rewritten, smaller, ungoverned and left.
	seen, rewritten, smaller, ungoverned, left, unknown uint64
	told                                                uint64 // edge mode: of all but the left ones, those that tell a window
	opened, refused                                     uint64 // connections, from here
}

func newFairQPort(sw *fairQSwitch, p *network.Port, c native.FairQConfig, epoch event.Time) *fairQPort {
	q := &fairQPort{
		sw: sw, port: p, law: native.NewFairQ(c, uint64(sw.queue.Now())), length: epoch, generation: 1,
		tick: event.Time(c.TickNs), rest: max(event.Time(c.TickNs), min(event.Time(c.PeriodNs), mostRest)),
	}
	if c.Variant != native.VariantAlg1 { // its mean is of samples T apart
		q.rest = q.tick
	}
	q.timer.Init(q)
	return q
}

// Happen is the timer.
func (q *fairQPort) Happen(_ *event.Event, now event.Time) {
	q.sample(now)
	if !q.running {
		q.resting = false
		return
	}
	next := q.tick
	if q.resting = q.backlog == 0 && q.rest > q.tick; q.resting {
		next = q.rest
	}
	q.sw.queue.Set(&q.timer, now+next)
}

// sample is the timer's work.
func (q *fairQPort) sample(now event.Time) {
	q.turn(now)
	if q.dataSeen {
		q.dataSeen, q.dataAt = false, now
	} else if q.registered > 0 && now-q.dataAt > q.sw.idle {
		q.registered = 0
		q.generation++
	}
	q.count(now)
	q.backlog = q.port.Backlog()
	q.law.Sample(uint64(now), uint32(min(q.backlog, math.MaxUint32)))
	q.samples++
	q.grant()
	q.running = q.law.Flows() > 0
}

// takeTimersPlace samples with a packet where the timer rests and the law says that it is late.
func (q *fairQPort) takeTimersPlace(now event.Time) {
	if q.seen%looksEvery == 0 && q.law.PacketMaySample(uint64(now)) {
		q.sample(now)
	}
}

// turn begins the epochs that are due. Behind a pause longer than all of them nobody is live.
func (q *fairQPort) turn(now event.Time) {
	for range wheelEpochs {
		if now-q.epochBegan < q.length {
			return
		}
		q.epoch++
		q.wheel[q.epoch%wheelEpochs] = 0
		q.opening[q.epoch%wheelEpochs] = 0
		q.epochBegan += q.length
	}
	q.epochBegan = now
}

// flows is how many count.
func (q *fairQPort) flows() uint32 {
	if q.sw.handshake {
		return q.registered
	}
	n := uint32(0)
	for i := range uint64(liveEpochs) {
		n += q.wheel[(q.epoch-i)%wheelEpochs]
	}
	return n
}

// open counts a direction whose connection's SYN-ACK passes: until its handshake is over, and no longer than a flow counts
// that sends nothing. With count: opening SYN-ACKs are held to the share that is left if these become flows, and nobody
// else is: half-open connections take nothing from flows that send.
func (q *fairQPort) open(e *end, now event.Time) {
	q.turn(now)
	e.opened() // sent again: it counts anew
	e.opening, e.epoch = q, q.epoch
	q.opening[q.epoch%wheelEpochs]++
}

// opened says that the handshake is over.
func (e *end) opened() {
	q := e.opening
	if q == nil {
		return
	}
	if q.isLive(e.epoch) {
		q.opening[e.epoch%wheelEpochs]--
	}
	e.opening = nil
}

// openingQ8 is what a SYN-ACK is held to.
func (q *fairQPort) openingQ8(now event.Time) uint64 {
	q.turn(now)
	n := uint32(0)
	for i := range uint64(liveEpochs) {
		n += q.opening[(q.epoch-i)%wheelEpochs]
	}
	return q.law.OpeningQ8(n)
}

// count tells the law how many flows there are.
func (q *fairQPort) count(now event.Time) {
	if n := q.flows(); n != q.law.Flows() {
		q.law.SetFlows(uint64(now), n)
	}
}

// grant takes over the law's window, if there is anybody to grant it to.
func (q *fairQPort) grant() {
	q.grantQ8 = 0
	if q.law.Flows() > 0 {
		q.grantQ8 = q.law.WindowQ8()
	}
}

// recount lets the law know of another number of flows now, and not with the next sample: what a newcomer is granted
// first must be its share. It wakes the timer.
func (q *fairQPort) recount(now event.Time) {
	start := !q.running
	if start {
		q.epochBegan, q.dataAt = now, now
	}
	q.count(now)
	q.grant()
	if start && q.law.Flows() > 0 {
		q.running, q.resting = true, false
		q.sw.queue.Set(&q.timer, now+q.tick)
	}
}

// ---- seats ----

func (q *fairQPort) isLive(epoch uint64) bool { return q.epoch-epoch < liveEpochs }

// seat counts a direction where it now sends.
func (q *fairQPort) seat(e *end, now event.Time) {
	old, epoch := e.seat, e.epoch
	if old == q && epoch == q.epoch {
		return
	}
	e.seat, e.epoch = q, q.epoch
	q.wheel[q.epoch%wheelEpochs]++
	counted := false
	if old != nil && old.isLive(epoch) {
		old.wheel[epoch%wheelEpochs]--
		counted = old == q
	}
	if !counted && !q.sw.handshake {
		q.recount(now)
	}
}

// register enters a direction in the register of the port that it leaves by, once; again if the register was emptied
// since.
func (q *fairQPort) register(e *end, now event.Time) {
	if e.registration == q.generation {
		return
	}
	e.registration, e.registeredAt = q.generation, q
	q.registered++
	q.recount(now)
}

// leave counts a direction no more: its FIN left, or its connection was reset.
func (e *end) leave(now event.Time) {
	if q := e.seat; q != nil {
		if q.isLive(e.epoch) {
			q.wheel[e.epoch%wheelEpochs]--
		}
		e.seat = nil
	}
	if q := e.registeredAt; q != nil {
		if e.registration == q.generation && q.registered > 0 {
			q.registered--
		}
		e.registration, e.registeredAt = 0, nil
		q.recount(now)
	}
}
