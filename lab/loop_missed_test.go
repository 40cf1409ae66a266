package lab

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weir/bus"
	"weir/bus/pki"
	"weir/controller"
	recording "weir/controller/record"
	"weir/datapath/testnet"
	"weir/law"
	"weir/law/inventory"
	"weir/law/sicc"
	"weir/law/telemetry"
)

// missed is an incast of BenchmarkLoop after which no ACK was limited, and what was seen of it.
type missed struct {
	began, ended time.Time // the first SYN at the core (zero: none was seen), and when the benchmark stopped to look
	syns         int       // at the core
	fins         []time.Time
	acks         []seenACK   // that came to the watched VM
	sent         []time.Time // its data
}

// seenACK is an ACK with its window in bytes.
type seenACK struct {
	at     time.Time
	window int
}

// end notes the first FIN of a flow at the core.
func (m *missed) end(s *testnet.Segment, open map[netip.AddrPort]bool) {
	if open[s.From] {
		delete(open, s.From)
		m.fins = append(m.fins, s.At)
	}
}

// Reasons of missed incasts. The first three follow from Algorithm 1: the reports did not predict an incast.
const (
	becauseOver   = "over-when-read" // the flows had ended when the agent read the counters: SYNs minus FINs
	becauseFINs   = "hidden-by-FINs" // of flows before the incast (SI-9)
	becauseSpread = "SYNs-spread"    // no reading had enough of them
	becauseUnlike = "not-granted"    // the prediction was above the buffer, and the watched pair was not limited
	becauseSilent = "no-ACK-to-limit"
	becauseLate   = "ACKs-not-limited" // some came while the pair was limited
	becauseUnseen = "no-SYN"
)

// coreReading is what one reading reported of the port to the incasts, and what the law did.
type coreReading struct {
	at          time.Time
	reports     int              // of arrivals
	counts      telemetry.Counts // in all of them
	queue, peak uint64
	syns, net   float64 // bytes predicted if FINs do not count, and as the law predicts
	limits      int     // grants that limit a pair, by any port
	watched     int     // of them, of the watched pair
	released    bool    // the watched pair
}

// readings are those of the core's port to the last rack, from a recording of the controller.
type readings struct {
	p       *sicc.Params
	core    law.Switch
	port    uint32
	buffer  float64
	watched law.VM
	peer    netip.Addr
	mean    float64
	now     coreReading
	list    []coreReading
}

// explain returns how many incasts were missed for each reason, and logs what the law knew of each. known is when the events of some
// serial numbers began.
func (k *loopKit) explain(p *sicc.Params, known map[uint64]int64) map[string]int {
	k.b.Helper()
	core := k.plan.byName["core"]
	towards := func(p *port) bool { return p.peer.name == fmt.Sprint("tor", loopRacks) }
	r := &readings{
		p: p, core: law.Switch(core.subnet), port: uint32(ofPort(slices.IndexFunc(core.ports, towards))),
		watched: vmOf(k.plan.byName[k.watchedVM]), peer: k.servers[k.peer].Addr(),
	}
	if err := r.read(k.record, known); err != nil {
		k.b.Logf("why incasts were missed is not known: %v", err) // a busy machine can lose entries
		return nil
	}
	why := map[string]int{}
	for i := range k.missed {
		m := &k.missed[i]
		reason, facts := r.why(m)
		why[reason]++
		k.b.Logf("missed %v: %s: %d SYNs and %d FINs at the core\n%s", m.began.Format("15:04:05.000"), reason, m.syns, len(m.fins), facts)
	}
	return why
}

// begins returns when the events of the last decisions began, by serial number.
func (k *loopKit) begins() map[uint64]int64 {
	k.b.Helper()
	var list []controller.Decision
	who := pki.Identity{Role: pki.Controller, Name: "lab"}
	if err := k.bus.Ask(k.b.Context(), who, &bus.Question{What: bus.AskTrace, Last: 16}, &list); err != nil {
		k.b.Fatal(err)
	}
	at := map[uint64]int64{}
	for i := range list {
		at[list[i].Serial] = list[i].Unix
	}
	return at
}

// read reads a recording. The two clocks differ by the same time for all events.
func (r *readings) read(path string, known map[uint64]int64) error {
	rec, err := recording.Open(path)
	if err != nil {
		return err
	}
	defer rec.Close()
	offset, nows := int64(0), []int64(nil)
	for {
		e, err := rec.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if unix, ok := known[e.Cause]; ok {
			offset = unix - int64(e.Now)
		}
		if r.event(e) {
			r.list = append(r.list, r.now)
			r.now = coreReading{}
			nows = append(nows, int64(e.Now))
		}
	}
	if offset == 0 || len(rec.Problems()) > 0 {
		return fmt.Errorf("the recording does not fit: %v", rec.Problems())
	}
	for i := range r.list {
		r.list[i].at = time.Unix(0, nows[i]+offset)
	}
	return nil
}

// event takes one event, and reports whether it ends a reading of the core.
func (r *readings) event(e *recording.Entry) bool {
	for _, s := range e.Steps {
		for _, a := range s.Actions {
			if g, ok := a.Value.(law.Grant); ok {
				r.grant(&g)
			}
		}
	}
	switch e := e.Event.Value.(type) {
	case *inventory.Switch:
		for _, p := range e.Ports {
			if e.At == r.core && p.N == r.port {
				r.buffer = float64(p.BufferBytes)
			}
		}
	case *telemetry.Arrivals:
		if e.At == r.core {
			r.arrivals(e)
		}
	case *telemetry.Telemetry:
		if e.At != r.core {
			return false
		}
		for _, p := range e.Ports {
			if p.N == r.port {
				r.now.queue, r.now.peak = p.BacklogBytes, p.PeakBytes
			}
		}
		r.predict()
		return true
	}
	return false
}

func (r *readings) arrivals(e *telemetry.Arrivals) {
	r.now.reports++
	for i := range e.Ports {
		if c := &e.Ports[i].Counts; e.Ports[i].N == r.port {
			r.now.counts.SYN += c.SYN + c.SYNACK
			r.now.counts.FIN += c.FIN
		}
	}
}

// grant notes an action of any event since the reading before.
func (r *readings) grant(g *law.Grant) {
	watched := g.Key.VM == r.watched && g.Key.Peer == r.peer
	if g.Lease == 0 {
		r.now.released = r.now.released || watched
		return
	}
	r.now.limits++
	if watched {
		r.now.watched++
	}
}

// predict calculates as Algorithm 1 does.
func (r *readings) predict() {
	const segment = 1460
	r.mean += r.p.QueueWeight * (float64(r.now.queue) - r.mean)
	window := float64(r.p.InitialWindow) * segment
	r.now.syns = float64(r.now.counts.SYN)*window + r.mean
	r.now.net = r.now.syns - float64(r.now.counts.FIN)*window
}

// why returns why an incast was missed, and the readings around it.
func (r *readings) why(m *missed) (reason, facts string) {
	if m.began.IsZero() {
		return becauseUnseen, ""
	}
	var text strings.Builder
	reason = becauseSpread
	for i := range r.list {
		d := &r.list[i]
		after := d.at.Sub(m.began)
		if after < -50*time.Millisecond || d.at.After(m.ended) {
			continue
		}
		if d.counts.SYN+d.counts.FIN > 0 || d.watched > 0 || d.released {
			fmt.Fprintf(&text, "   %7.1f ms: %2d SYN, %2d FIN in %d reports, queue %6d, peak %6d, predicted %7.0f of %.0f B; %d limits, of the pair %d, released %v\n",
				inMs(after), d.counts.SYN, d.counts.FIN, d.reports, d.queue, d.peak, d.net, r.buffer, d.limits, d.watched, d.released)
		}
		most := r.p.OnFraction * r.buffer
		switch {
		case after < 0 || reason != becauseSpread:
		case d.watched > 0:
			reason = r.limited(&text, m, i)
		case d.counts.SYN > d.counts.FIN && d.net >= most:
			reason = becauseUnlike
		case d.counts.SYN > 0 && d.syns >= most && int(d.counts.FIN) > m.finsUntil(d.at):
			reason = becauseFINs
		case d.counts.SYN > 0 && d.syns >= most:
			reason = becauseOver
		}
	}
	return reason, text.String()
}

// limited returns why no ACK was limited, although reading i limited the watched pair.
func (r *readings) limited(text *strings.Builder, m *missed, i int) string {
	from, until := r.list[i].at, m.ended
	for _, d := range r.list[i+1:] {
		if d.released && d.at.Before(until) {
			until = d.at
		}
	}
	n, before, next := 0, m.began, m.ended
	for _, a := range m.acks {
		switch {
		case a.at.Before(from):
			before = a.at
		case a.at.Before(until):
			n++
		case next.Equal(m.ended):
			next = a.at
		}
	}
	fmt.Fprintf(text, "   limited for %.1f ms: %d ACKs came; without an ACK from %.1f ms before to %.1f ms after, in which %d segments left\n",
		inMs(until.Sub(from)), n, inMs(from.Sub(before)), inMs(next.Sub(until)), m.sentBetween(before, next))
	if n == 0 {
		return becauseSilent
	}
	return becauseLate
}

// finsUntil returns how many flows of the incast had ended.
func (m *missed) finsUntil(t time.Time) (n int) {
	for _, at := range m.fins {
		if at.Before(t) {
			n++
		}
	}
	return n
}

// sentBetween returns how many segments the watched VM sent.
func (m *missed) sentBetween(from, to time.Time) (n int) {
	for _, at := range m.sent {
		if at.After(from) && at.Before(to) {
			n++
		}
	}
	return n
}

func inMs(d time.Duration) float64 { return d.Seconds() * 1e3 }
