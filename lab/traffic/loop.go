package traffic

import (
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"weir/experiment/workload"
	"weir/law"
)

// failurePause is how long a closed loop waits after a request that failed early, so that it does not flood a
// server that refuses.
const failurePause = 10 * time.Millisecond

// single carries f on its own connection c, which has just been dialled for it. It waits until both have ended;
// false when the flow failed.
//
// A connection that is reset before any data arrived is opened once more, as part of the same flow. The network
// resets no connections, but Linux does (seen on 6.18, one connection in 10^5), when the handshake's last packet
// and the first data are processed on two processors at once. While the open socket replaces the half-open one in
// the hash table, a lookup finds neither, and the kernel answers the data with a reset.
func (r *runner) single(c *conn, f *flow) bool {
	err := c.quit(c.exchange(f))
	if errors.Is(err, unix.ECONNRESET) && f.untouched() {
		r.reopened.Add(1)
		if c, err = r.dial(c.route, f); err == nil {
			err = c.quit(c.exchange(f))
		}
	}
	if err != nil {
		r.flowFailed(f, err)
	}
	return err == nil
}

// session is a persistent connection that is opened again after a failure.
type session struct {
	r     *runner
	route *route
	conn  *conn
	// latest is the connection that was opened last, for flows that wait for it in other goroutines.
	latest atomic.Pointer[conn]
}

func (s *session) open() error {
	if s.conn != nil {
		return nil
	}
	c, err := s.r.dial(s.route, nil)
	s.conn = c
	s.latest.Store(c)
	return err
}

// carry transfers f and waits until it has ended; false when it failed.
func (s *session) carry(f *flow) bool {
	if f.hasEnded() {
		return false
	}
	if err := s.open(); err != nil {
		s.r.flowFailed(f, err)
		return false
	}
	before := s.conn.counts()
	f.begin(s.conn, s.r.clock.now())
	err := s.conn.exchange(f)
	f.addCounts(s.conn.counts().since(before))
	if err != nil {
		s.r.flowFailed(f, s.conn.quit(err))
		s.conn = nil
	}
	return err == nil
}

func (s *session) close() {
	if s.conn != nil {
		_ = s.conn.quit(nil) // its flows have ended
	}
}

// line is a persistent connection of open-loop flows.
type line struct{ item, mouse int32 }

// queue is a persistent connection with the flows that wait for it.
type queue struct {
	*session
	flows chan *flow
}

// persistentLines returns the persistent connections and the events that open them.
func (r *runner) persistentLines(routes [][]*route) (map[line]queue, []event) {
	type use struct {
		first law.Duration
		count int
		pair  int32
	}
	uses := map[line]*use{}
	var order []line
	for i := range r.work.Flows {
		w := &r.work.Flows[i]
		if !workload.Persistent(&r.cfg.Items[w.Item].Traffic) {
			continue
		}
		l := line{w.Item, w.Mouse}
		if uses[l] == nil {
			uses[l] = &use{first: w.Start, pair: w.Pair}
			order = append(order, l)
		}
		uses[l].count++
	}
	lines := map[line]queue{}
	var events []event
	for _, l := range order {
		u := uses[l]
		ch := make(chan *flow, u.count)
		s := &session{r: r, route: routes[l.item][u.pair]}
		lines[l] = queue{s, ch}
		events = append(events, event{max(0, u.first-openAhead), func() {
			r.spawn(func() { s.serve(ch) })
		}})
	}
	return lines, events
}

// serve carries the flows of a line, one after the other.
func (s *session) serve(flows <-chan *flow) {
	defer s.close()
	_ = s.open() // if it fails, the first flow tries again and reports it
	for f := range flows {
		s.carry(f)
	}
}

// loopEvents returns the events that start the connections of the closed loops.
func (r *runner) loopEvents(routes [][]*route) []event {
	var events []event
	for i := range r.work.Loops {
		l := &r.work.Loops[i]
		s := &loop{r: r, Loop: l, route: routes[l.Item][l.Pair]}
		for n, at := range l.Starts {
			r.left.Add(1)
			events = append(events, event{at, func() {
				r.spawn(func() {
					defer r.oneLess()
					s.connection(n)
				})
			}})
		}
	}
	return events
}

// loop is a closed loop in progress.
type loop struct {
	r *runner
	*workload.Loop
	route *route
	taken atomic.Int64 // requests
}

// connection carries requests, one after the other, until there are no more.
func (l *loop) connection(n int) {
	s := &session{r: l.r, route: l.route}
	defer s.close()
	stop := l.r.t0 + int64(l.Stop)
	for l.r.clock.now() < stop {
		request := int(l.taken.Add(1)) - 1
		if l.Requests > 0 && request >= int(l.Requests) {
			return
		}
		f := l.r.newFlow(int(l.Item), int(l.Pair), int(l.Mouse)+n, int(l.Epoch)+request, int64(l.Size(request)))
		if !l.r.admit(f) {
			return
		}
		if l.request(s, f) {
			continue
		}
		if f.give == 0 || f.res.End-f.res.Start < time.Duration(f.give) {
			time.Sleep(failurePause)
		}
	}
}

func (l *loop) request(s *session, f *flow) bool {
	if l.route.persistent {
		return s.carry(f)
	}
	c, err := l.r.dial(l.route, f)
	if err != nil {
		l.r.flowFailed(f, err)
		return false
	}
	return l.r.single(c, f)
}
