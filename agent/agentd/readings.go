package agentd

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"weir/bus/weirv1"
	"weir/datapath/telemetry"
	"weir/internal/alarm"
)

// sender sends reports.
type sender interface {
	SendTelemetry(*weirv1.Telemetry) error
	SendEvents(*weirv1.Events) error
}

// readings reads telemetry, and sends it.
type readings struct {
	send  sender
	log   *slog.Logger
	every time.Duration // T

	reading telemetry.Reading
	totals  *weirv1.Totals
	counts  ReadingCounts
	late    atomic.Uint64
	said    string
}

// ReadingCounts counts readings.
type ReadingCounts struct {
	Readings uint64 `json:"readings"`
	Late     uint64 `json:"late"`       // readings that were left out, because the one before ended or began too late
	Waiting  uint64 `json:"waiting"`    // times that a port's counts had to wait for the next reading
	Failed   uint64 `json:"failed"`     // readings without the figures of some queue disciplines
	Sent     uint64 `json:"sent"`       // messages with telemetry
	Arrivals uint64 `json:"arrivals"`   // messages with arrivals
	Flows    uint64 `json:"flows"`      // messages with the progress of flows
	Lost     uint64 `json:"lost"`       // messages that the bus did not take. The next ones have their counts
	Slowest  int64  `json:"slowest_us"` // the longest reading, with sending
}

func newReadings(send sender, log *slog.Logger, every time.Duration) readings {
	return readings{send: send, log: log, every: every, totals: weirv1.NewTotals()}
}

// run calls read every T, at times that do not drift, until stop. read returns T. It closes at.
func (r *readings) run(at *alarm.Alarm, stop <-chan struct{}, read func() time.Duration) {
	defer at.Close()
	go func() { <-stop; at.Close() }()
	every := read()
	for next := clock() + every; at.Wait(int64(next)); {
		every = read()
		var left uint64
		next, left = following(next, clock(), every)
		r.late.Add(left)
	}
}

// following returns the first time of the schedule after now, and how many earlier ones it leaves out.
func following(last, now, every time.Duration) (next time.Duration, left uint64) {
	next = last + every
	if behind := now - next; behind > 0 {
		left = uint64(behind / every)
		next += time.Duration(left) * every
	}
	return next, left
}

// read reads all ports, and sends what changed.
func (r *readings) read(t *telemetry.Telemetry, f *progress) {
	begun := time.Now()
	r.counts.Readings++
	if err := t.Read(&r.reading); err != nil {
		r.counts.Failed++
		r.say(err)
	}
	r.counts.Waiting = t.Late()
	if len(r.reading.Telemetry.Ports) == 0 {
		return
	}
	if m := r.totals.Arrivals(&r.reading.Arrivals); m != nil { // first: law/telemetry says so
		r.arrivals(m)
	}
	for m := range f.messages(uint64(r.reading.Telemetry.At), r.say) {
		r.sent(r.send.SendEvents(m), &r.counts.Flows)
	}
	if m := r.totals.Telemetry(&r.reading.Telemetry); m != nil {
		r.sent(r.send.SendTelemetry(m), &r.counts.Sent)
	}
	r.counts.Slowest = max(r.counts.Slowest, time.Since(begun).Microseconds())
}

// arrivals sends arrivals, in several messages if one would be too long.
func (r *readings) arrivals(m *weirv1.Events) {
	const full = weirv1.MaxMessage / 2 // leaves room for the rest of the message
	if proto.Size(m) <= full {
		r.sent(r.send.SendEvents(m), &r.counts.Arrivals)
		return
	}
	bytes, from := 0, 0
	for i, a := range m.GetArrivals() {
		n := proto.Size(a) + 8
		if bytes+n > full {
			r.sent(r.send.SendEvents(&weirv1.Events{Switch: m.GetSwitch(), Arrivals: m.GetArrivals()[from:i]}), &r.counts.Arrivals)
			bytes, from = 0, i
		}
		bytes += n
	}
	r.sent(r.send.SendEvents(&weirv1.Events{Switch: m.GetSwitch(), Arrivals: m.GetArrivals()[from:]}), &r.counts.Arrivals)
}

func (r *readings) sent(err error, count *uint64) {
	if err != nil {
		r.counts.Lost++ // the connection logs why it is down
		return
	}
	*count++
}

// say logs an error that is new.
func (r *readings) say(err error) {
	if text := err.Error(); text != r.said {
		r.said = text
		r.log.Warn("cannot read all queue disciplines and flows", "error", err)
	}
}

// cutPort returns the name of a port of which a problem is.
func cutPort(who string) (name string, ok bool) { return strings.CutPrefix(who, "port ") }
