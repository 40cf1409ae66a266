package sim

import (
	"time"

	"weir/experiment/result"
	"weir/experiment/workload"
	"weir/sim/event"
)

// session runs flows one after the other: those of a persistent connection, or the requests of one connection of a
// closed loop. If that is not persistent, each request has a new connection.
type session struct {
	t          *traffic
	item, pair int32
	conn       *conn // nil: none, or it failed
	carried    *flow // in progress
	waiting    []*flow
	toCome     int // open-loop flows that have not started

	loop  *loop // nil: of open-loop flows
	n     int32
	pause event.Event
}

// loop is a closed loop in progress.
type loop struct {
	*workload.Loop
	taken int // requests
}

func newSession(t *traffic, itemIndex, pair int32) *session {
	s := &session{t: t, item: itemIndex, pair: pair}
	s.pause.Init(s)
	return s
}

// loopUnderWay returns the loop's state, which its connections share.
func (t *traffic) loopUnderWay(i int32) *loop {
	if t.loops == nil {
		t.loops = make([]*loop, len(t.work.Loops))
	}
	if t.loops[i] == nil {
		t.loops[i] = &loop{Loop: &t.work.Loops[i]}
	}
	return t.loops[i]
}

// open makes sure that there is a connection, and returns false if that fails.
func (s *session) open() bool {
	if s.conn == nil {
		if s.conn = s.t.dial(s.item, s.pair, nil); s.conn != nil {
			s.conn.owner = s
		}
	}
	return s.conn != nil
}

// carry transfers the open-loop flow f when those before it have ended.
func (s *session) carry(f *flow) {
	if s.carried != nil {
		s.waiting = append(s.waiting, f)
		return
	}
	s.begin(f)
	s.rest()
}

// begin transfers f on the persistent connection; the session continues with done.
func (s *session) begin(f *flow) {
	s.carried = f
	if !s.open() {
		f.fail(errNoPort)
		s.carried = nil
		return
	}
	s.conn.before = s.conn.counts()
	f.begin(s.conn.key(), s.t.queue.Now())
	s.conn.exchange(f)
}

// neverBegan records that f waits for the flows before it until the run ends. Its connection's timeouts are theirs.
func (s *session) neverBegan(f *flow) {
	f.addCounts(tcpCounts{})
	if s.conn != nil && s.conn.opened {
		f.result().Opening = result.Opened
	}
}

// done is called when the current flow has been transferred.
func (s *session) done(f *flow, ok bool) {
	s.carried = nil
	if s.t.over {
		return
	}
	if s.loop == nil {
		s.rest()
		return
	}
	if !ok && (f.give == 0 || f.result().End-f.result().Start < time.Duration(f.give)) {
		s.t.queue.Set(&s.pause, s.t.queue.Now()+failurePause)
		return
	}
	s.next()
}

// broken is called when the connection has been reset; f was the last that it carried.
func (s *session) broken(f *flow) {
	if s.conn != nil && s.conn.gone {
		s.conn = nil
	}
	if s.carried != nil {
		s.done(f, false)
	}
}

// rest continues with the waiting flows. After the last flow it closes the connection.
func (s *session) rest() {
	for s.carried == nil && len(s.waiting) > 0 {
		f := s.waiting[0]
		s.waiting = s.waiting[1:]
		if !f.ended {
			s.begin(f)
		}
	}
	if s.carried == nil && s.toCome == 0 {
		s.close()
	}
}

func (s *session) close() {
	if c := s.conn; c != nil {
		s.conn = nil
		c.close()
	}
}

// Happen continues after a failed request.
func (s *session) Happen(*event.Event, event.Time) { s.next() }

// next starts the closed loop's next request, or ends this connection of it.
func (s *session) next() {
	l, t := s.loop, s.t
	request := l.taken
	if t.queue.Now() >= t.t0+event.Time(l.Stop) || l.Requests > 0 && request >= int(l.Requests) {
		s.close()
		t.oneLess()
		return
	}
	l.taken++
	f := t.newFlow(l.Item, l.Pair, l.Mouse+s.n, l.Epoch+int32(request), int64(l.Size(request)))
	if t.items[s.item].persistent {
		s.begin(f)
		if s.carried == nil {
			s.done(f, false)
		}
		return
	}
	s.carried = f
	c := t.dial(s.item, s.pair, f)
	if c == nil {
		s.done(f, false)
		return
	}
	c.owner = s
	c.exchange(f)
}
