package sim

import (
	"fmt"
	"math"
	"time"

	"weir/experiment/result"
	"weir/experiment/workload"
	"weir/sim/event"
	"weir/sim/laws"
	"weir/sim/network"
)

// flow is one flow, or one request, from its start to its end. Its result is in traffic.results.
type flow struct {
	t       *traffic
	index   int32 // into traffic.results
	item    int32
	size    int64 // 0: endless
	rate    int64 // bit/s, 0: unpaced
	give    event.Time
	stop    event.Time // 0: only the run's end stops it
	due     event.Time // deadline; 0: none
	counted bool       // the run waits for this flow by itself (open loop)
	begun   bool
	ended   bool
	carrier *conn // nil: UDP, or not in progress yet
	timer   event.Event
	limit   event.Time // when timer is due: stop, or give after the start

	// For a paced sender over TCP.
	pacer event.Event
	since event.Time
	sent  int64

	before, after *flow // of traffic.alive
}

// newFlow adds the record of a flow that is about to start.
func (t *traffic) newFlow(itemIndex, pair, mouse, epoch int32, size int64) *flow {
	it := t.items[itemIndex].Item
	p := it.Pairs[pair]
	if len(t.results) >= t.most { // closed loops continue as fast as the network allows
		t.stop(fmt.Errorf("traffic %s: the run has more than %d flows: give it fewer requests, or a shorter duration", it.Name, t.most))
	}
	f := &flow{t: t, index: int32(len(t.results)), item: itemIndex, size: size, give: event.Time(it.GiveUp)}
	f.timer.Init(f)
	t.results = append(t.results, result.Flow{
		Group: workload.Group(&it.Traffic), Item: it.Name, Src: p.Src, Dst: p.Dst, Mouse: int(mouse), Epoch: int(epoch),
		Endless: size == 0, Size: size, Deadline: it.Deadline.Std(), Start: t.since(t.queue.Now()), Timeouts: -1,
	})
	if !t.items[itemIndex].udp {
		t.results[f.index].Opening = result.NeverOpened // until it opens
	}
	f.after = t.alive
	if f.after != nil {
		f.after.before = f
	}
	t.alive = f
	return f
}

// stop ends the run because it has reached a limit.
func (t *traffic) stop(why error) {
	if t.broken == nil {
		t.broken = why
		t.queue.Halt()
	}
}

// since returns the time from t = 0.
func (t *traffic) since(now event.Time) time.Duration { return time.Duration(now - t.t0) }

func (f *flow) result() *result.Flow { return &f.t.results[f.index] }

// begin starts the flow now, and sets the timer that ends it.
func (f *flow) begin(key result.Key, now event.Time) {
	r := f.result()
	r.Start, r.Key, f.begun = f.t.since(now), key, true
	if r.Deadline > 0 {
		f.due = now + event.Time(r.Deadline)
		f.declare(key)
	}
	if f.give > 0 {
		f.limit = now + f.give
	}
	if f.stop > 0 && (f.limit == 0 || f.stop < f.limit) {
		f.limit = f.stop
	}
	if f.limit > 0 && !f.ended {
		f.t.queue.Set(&f.timer, max(f.limit, now))
	}
}

// declare declares the flow to the laws, as its program does to the agent of the host that sends the data.
func (f *flow) declare(key result.Key) {
	if key.Proto != network.TCP || f.t.declared == nil {
		return
	}
	if f.t.items[f.item].pull {
		key = key.Reverse()
	}
	f.t.declared(laws.Declaration{
		From: hostAt(key.Src.Addr()), To: hostAt(key.Dst.Addr()), FromPort: key.Src.Port(), ToPort: key.Dst.Port(),
		Left: f.result().Deadline, Bytes: uint64(f.size),
	})
}

// Happen ends the flow at its stop or when it is given up, and writes the due bytes of a paced one.
func (f *flow) Happen(ev *event.Event, now event.Time) {
	if ev == &f.pacer {
		f.pace(now)
		return
	}
	c := f.carrier
	if f.size == 0 && f.limit == f.stop {
		if f.end(true, now) && c != nil {
			c.stopSending(f)
		}
		return
	}
	if f.end(false, now) && c != nil {
		c.abort()
	}
}

// presentBin is the current bin of delivered bytes. It is kept because a division for each packet is slow.
type presentBin struct {
	number int32
	end    event.Time
}

// binAt returns the bin of the time now. The clock never goes back.
func (t *traffic) binAt(now event.Time) int32 {
	if now >= t.present.end {
		n := (now - t.t0) / t.bin
		t.present = presentBin{int32(n), t.t0 + (n+1)*t.bin}
	}
	return t.present.number
}

// received records n bytes that the receiving program got, and reports whether the flow is complete.
func (f *flow) received(n int64, now event.Time) bool {
	if f.ended || f.stop > 0 && now >= f.stop {
		return false
	}
	r := f.result()
	r.Bytes += n
	bin := f.t.binAt(now)
	for n > 0 {
		last := len(r.Delivered) - 1
		if last < 0 || r.Delivered[last].Bin != bin || r.Delivered[last].Bytes == math.MaxInt32 {
			r.Delivered = append(r.Delivered, result.Delivery{Bin: bin})
			last++
			if f.t.bins++; f.t.bins > f.t.mostBins {
				f.t.stop(fmt.Errorf("traffic %s: the rates of the run's flows have more than %d steps: take a longer measure.series (it is %v), or fewer flows",
					r.Item, f.t.mostBins, f.t.cfg.Series))
			}
		}
		d := &r.Delivered[last]
		room := min(n, int64(math.MaxInt32-d.Bytes))
		d.Bytes += int32(room)
		n -= room
	}
	if f.size == 0 || r.Bytes < f.size {
		return false
	}
	f.end(true, now)
	return true
}

// end ends the flow. It returns false if the flow had ended before.
func (f *flow) end(done bool, now event.Time) bool {
	if f.ended {
		return false
	}
	f.ended = true
	r := f.result()
	r.Done, r.End = done, f.t.since(now)
	f.t.queue.Stop(&f.timer)
	f.t.queue.Stop(&f.pacer)
	f.unlink()
	f.t.ended++
	if f.counted {
		f.t.oneLess()
	}
	return true
}

func (f *flow) unlink() {
	if f.before != nil {
		f.before.after = f.after
	} else {
		f.t.alive = f.after
	}
	if f.after != nil {
		f.after.before = f.before
	}
	f.before, f.after = nil, nil
}

// fail ends a flow whose connection failed. It does nothing if the flow has ended: then its end broke the connection.
func (f *flow) fail(why error) {
	if f.end(false, f.t.queue.Now()) && !f.t.over {
		f.t.errs[why.Error()]++
	}
}

// addCounts adds the counts of a connection that carried the flow.
func (f *flow) addCounts(x tcpCounts) {
	r := f.result()
	r.Timeouts = max(r.Timeouts, 0) + int(x.timeouts)
	r.OutOfOrder = result.OutOfOrder{Known: true, Segments: r.OutOfOrder.Segments + x.early}
	r.Causes = result.Causes{Known: true, FLoss: r.Causes.FLoss + int32(x.floss), LAck: r.Causes.LAck + int32(x.lack)}
}

// startPacing makes the sender write at f.rate payload bits per second.
func (f *flow) startPacing(now event.Time) {
	f.pacer.Init(f)
	f.since = now
	f.t.queue.Set(&f.pacer, now+paceStep)
}

// pace writes the bytes that are due.
func (f *flow) pace(now event.Time) {
	due := int64(float64(now-f.since) * float64(f.rate) / 8e9)
	if f.size > 0 {
		due = min(due, f.size)
	}
	if n := due - f.sent; n > 0 {
		f.sent = due
		f.carrier.write(n)
	}
	if f.size == 0 || f.sent < f.size {
		f.t.queue.Set(&f.pacer, now+paceStep)
	}
}
