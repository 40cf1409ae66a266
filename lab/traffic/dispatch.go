package traffic

import (
	"cmp"
	"context"
	"slices"
	"time"

	"weir/experiment/workload"
	"weir/internal/alarm"
	"weir/law"
)

// startAhead is the time between the end of the preparations and t = 0.
const startAhead = 20 * time.Millisecond

// openAhead is how long before its first request a persistent connection is opened, so that the connection is
// ready for the request.
const openAhead = law.Duration(100 * time.Millisecond)

// event is something that starts at a time, other than an open-loop flow on its own connection.
type event struct {
	at  law.Duration
	run func()
}

// start sets t = 0 and starts the dispatcher.
func (r *runner) start(ctx context.Context) error {
	timer, err := alarm.New()
	if err != nil {
		return err
	}
	r.left.Store(1) // counts the dispatcher itself, so that an empty schedule ends
	routes := make([][]*route, len(r.cfg.Items))
	for i := range r.cfg.Items {
		it := &r.cfg.Items[i]
		for pair := range it.Pairs {
			var rt *route
			if !workload.UDP(&it.Traffic) {
				rt = r.route(it, pair)
			}
			routes[i] = append(routes[i], rt)
		}
	}
	events := r.loopEvents(routes)
	lines, more := r.persistentLines(routes)
	events = append(events, more...)
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	r.left.Add(int64(len(r.work.Flows)))
	r.t0 = r.clock.now() + int64(startAhead)
	if err := r.startUDP(ctx); err != nil {
		timer.Close()
		return err
	}
	d := &dispatcher{r: r, routes: routes, events: events, lines: lines, timer: timer}
	r.spawn(func() {
		stop := timer.CloseWhen(ctx)
		defer func() {
			if stop() {
				timer.Close()
			}
		}()
		d.run()
	})
	return nil
}

// dispatcher starts flows and events in the order of their times. It opens connections itself, not in other
// goroutines, so that a start is as exact as the timer.
type dispatcher struct {
	r      *runner
	routes [][]*route
	events []event
	lines  map[line]queue
	timer  *alarm.Alarm
}

func (d *dispatcher) run() {
	defer d.r.oneLess()
	defer func() {
		for _, q := range d.lines {
			close(q.flows)
		}
	}()
	flows, events := d.r.work.Flows, d.events
	for len(flows) > 0 || len(events) > 0 {
		isEvent := len(flows) == 0 || len(events) > 0 && events[0].at <= flows[0].Start
		at := law.Duration(0)
		if isEvent {
			at = events[0].at
		} else {
			at = flows[0].Start
		}
		if due := d.r.t0 + int64(at); d.r.clock.now() < due && !d.timer.Wait(due) {
			return
		}
		if d.r.isOver() {
			return
		}
		if isEvent {
			events[0].run()
			events = events[1:]
		} else {
			d.flow(&flows[0])
			flows = flows[1:]
		}
	}
}

// flow starts one open-loop flow.
func (d *dispatcher) flow(w *workload.Flow) {
	r := d.r
	it := &r.cfg.Items[w.Item]
	f := r.newFlow(int(w.Item), int(w.Pair), int(w.Mouse), int(w.Epoch), int64(w.Size))
	f.counted, f.rate = true, int64(w.Rate)
	if w.Stop > 0 {
		f.stop = r.t0 + int64(w.Stop)
	}
	if !r.admit(f) {
		return
	}
	switch {
	case workload.UDP(&it.Traffic):
		r.udp.begin(f, int(w.Item), int(w.Pair))
	case workload.Persistent(&it.Traffic):
		q := d.lines[line{w.Item, w.Mouse}]
		f.waitFor(q.session)
		q.flows <- f // has room for all flows of the line
	default:
		c, err := r.dial(d.routes[w.Item][w.Pair], f)
		if err != nil {
			r.flowFailed(f, err)
			return
		}
		r.spawn(func() { r.single(c, f) })
	}
}
