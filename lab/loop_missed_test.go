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
	"weir/law"
	"weir/law/inventory"
	"weir/law/sicc"
	"weir/law/telemetry"
)

// missed is an incast of BenchmarkLoop after which no ACK was limited, and what was seen of it.
type missed struct {
	began, ended time.Time // the first SYN at the core (zero: none was seen), and when the benchmark stopped to look
	syns         int       // at the core
	acks, least  int       // of the watched VM, and their smallest window in bytes
}

// ack counts an ACK with this window.
func (m *missed) ack(window int) {
	if m.acks == 0 || window < m.least {
		m.least = window
	}
	m.acks++
}

// Reasons of missed incasts. All but the last two follow from the law's rule and from what it was told.
const (
	becauseFINs   = "hidden-by-FINs" // with the SYNs of a reading alone it would have been an incast (SI-9)
	becauseSpread = "SYNs-spread"    // no reading had enough of them
	becauseOn     = "already-on"     // an incast of before was not over at the port
	becausePair   = "pair-unknown"   // the port did not know the watched pair
	becauseWire   = "not-carried-out"
	becauseUnseen = "no-SYN"
)

// reading is what the law was told of the port to the incasts, and what it did.
type reading struct {
	at          time.Time
	counts      telemetry.Counts
	queue, peak uint64
	syns, net   float64 // bytes predicted if FINs do not count, and as the law predicts
	limits      int     // grants that limit a pair
	watched     int     // of them, of the watched pair
	released    bool    // the watched pair
}

// readings replays a recording of a controller, for the core's port to the last rack.
type readings struct {
	p       *sicc.Params
	peer    netip.Addr
	from    netip.Addr
	core    law.Switch
	port    uint32
	buffer  float64
	watched law.VM
	mean    float64
	now     reading
	list    []reading
}

// explain returns how many incasts were missed for each reason, and logs what the law knew of each.
func (k *loopKit) explain(p *sicc.Params, known map[uint64]int64) map[string]int {
	k.b.Helper()
	r := &readings{p: p, peer: k.servers[k.peer].Addr(), from: k.Addr(k.watchedVM, 0)}
	if err := r.read(k.record, known); err != nil {
		k.b.Fatal(err)
	}
	why := map[string]int{}
	for i := range k.missed {
		m := &k.missed[i]
		reason, facts := r.why(m)
		why[reason]++
		k.b.Logf("missed %v: %s: %d SYNs at the core, %d ACKs of the watched VM with a window of %d B or more\n%s",
			m.began.Format("15:04:05.000"), reason, m.syns, m.acks, m.least, facts)
	}
	return why
}

// clock returns when the events of some serial numbers began, for the time between both clocks.
func (k *loopKit) clock() map[uint64]int64 {
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
			r.now = reading{}
			nows = append(nows, int64(e.Now))
		}
	}
	if offset == 0 || len(rec.Problems()) > 0 {
		return fmt.Errorf("a recording that does not fit: %v", rec.Problems())
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
			if p.Name == fmt.Sprintf("core->tor%d", loopRacks) {
				r.core, r.port, r.buffer = e.At, p.N, float64(p.BufferBytes)
			}
		}
	case *inventory.Host:
		for _, vm := range e.VMs {
			if slices.ContainsFunc(vm.Addresses, func(a netip.Prefix) bool { return a.Contains(r.from) }) {
				r.watched = vm.Number
			}
		}
	case *telemetry.Arrivals:
		for i := range e.Ports {
			if e.At == r.core && e.Ports[i].N == r.port {
				r.now.counts = e.Ports[i].Counts
			}
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

// grant notes an action of any event since the reading before.
func (r *readings) grant(g *law.Grant) {
	watched := g.Key.VM == r.watched && g.Key.Peer == r.peer
	switch {
	case g.Lease == 0:
		r.now.released = r.now.released || watched
	default:
		r.now.limits++
		if watched {
			r.now.watched++
		}
	}
}

// predict calculates as Algorithm 1 does.
func (r *readings) predict() {
	const segment = 1460
	r.mean += r.p.QueueWeight * (float64(r.now.queue) - r.mean)
	began := float64(r.now.counts.SYN + r.now.counts.SYNACK)
	window := float64(r.p.InitialWindow) * segment
	r.now.syns = began*window + r.mean
	r.now.net = (began-float64(r.now.counts.FIN))*window + r.mean
}

// why returns why an incast was missed, and the readings around it.
func (r *readings) why(m *missed) (reason, facts string) {
	if m.began.IsZero() {
		return becauseUnseen, ""
	}
	var text strings.Builder
	reason = becauseSpread
	on := false
	for i := range r.list {
		d := &r.list[i]
		after := d.at.Sub(m.began)
		if after < -100*time.Millisecond || d.at.After(m.ended) {
			continue
		}
		if d.counts != (telemetry.Counts{}) || d.limits > 0 || d.released {
			fmt.Fprintf(&text, "   %8.1f ms: %2d SYN, %2d FIN, queue %6d, peak %6d, predicted %7.0f (without FINs %7.0f) of %.0f B; %d limits, of the pair %d, released %v\n",
				after.Seconds()*1e3, d.counts.SYN, d.counts.FIN, d.queue, d.peak, d.net, d.syns, r.buffer, d.limits, d.watched, d.released)
		}
		if after < 0 {
			on = d.limits > 0 || on && !d.released
			continue
		}
		began := d.counts.SYN > d.counts.FIN && d.net >= r.p.OnFraction*r.buffer
		switch {
		case d.watched > 0:
			reason = becauseWire
		case reason == becauseWire:
		case began && on:
			reason = becauseOn
		case began:
			reason = becausePair
		case reason == becauseSpread && d.syns >= r.p.OnFraction*r.buffer && d.counts.SYN > 0:
			reason = becauseFINs
		}
	}
	return reason, text.String()
}
