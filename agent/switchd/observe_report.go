package switchd

import (
	"fmt"
	"time"

	"weir/datapath/reading"
)

// report returns the measurements and the prediction.
func (w *observer) report(list int) *Observation {
	o := &Observation{Seconds: w.lasted.Seconds(), Along: w.source.name(), Ports: []ObservedPort{}}
	for _, p := range w.ports {
		o.Ports = append(o.Ports, p.report(w.lasted, list))
	}
	return o
}

// plainBytes is the size of a segment without payload: an acknowledgement with timestamps.
const plainBytes = tcpOverhead

// other returns the fraction of the rate used by traffic that is not data of known flows.
func (p *observedPort) other(seconds float64) float64 {
	a, b := &p.begin.stats, &p.end.stats
	var data float64
	for group := range b.Groups {
		data += cameBy(a.Groups[group].DataBytes, b.Groups[group].DataBytes)
	}
	packets := func(s *reading.Stats) uint64 { return s.Seen - s.NotTCP - s.Tunnel - s.Fragment - s.Short }
	tcp := data + plainBytes*cameBy(packets(a), packets(b))
	sent := p.end.queue.Since(p.begin.queue).SentBytes
	return max(0, float64(sent)-tcp) / (p.line.rate * seconds)
}

func (p *observedPort) report(lasted time.Duration, list int) ObservedPort {
	g, seconds := p.gather, lasted.Seconds()
	queue := p.end.queue.Since(p.begin.queue)
	drops := float64(queue.Drops) / seconds
	l := g.load(drops, p.other(seconds))
	then := predict(l)
	limited := g.limited()
	o := ObservedPort{
		Port: p.name, Ifindex: p.ifindex, Enforce: p.mode.String(), FormerEnforce: p.mode.String(), RateBps: uint64(8 * p.line.rate), BufferBytes: uint64(p.line.buffer),
		TargetBytes: uint64(p.line.target), RTTMs: 1e3 * l.RTT, HandshakeMs: milliseconds(p.handshake),
		Flows: l.Flows, FlowsMost: g.flowsMax, FlowsSeen: len(g.seen) + g.unlisted, OtherPercent: 100 * l.Other,
		Now: QueueNow{
			Samples: g.queue.n, MeanBytes: g.queue.mean(), P99Bytes: g.queue.quantile(0.99), MostBytes: p.most, DropsPerSecond: drops,
			SentBps:    8 * float64(queue.SentBytes) / seconds,
			GrantBytes: p.grants / float64(max(p.granted, 1)),
		},
		Then: QueueThen{
			WindowBytes: uint64(then.Window), WindowMostBytes: uint64(then.WindowMost),
			CanaryBytes: uint64(max((p.line.bdpWithQueue(p.handshake, g.queue.mean(), uint32(l.Flows))+p.line.target)/max(l.Flows, 1), l.floor())),
			MeanBytes:   then.Queue, LeastBytes: then.QueueLeast, MostBytes: then.QueueMost,
			DropsPerSecond: then.Drops, DropsMost: then.DropsMost, NewFlows: then.Room, Newcomers: then.Room,
			PacedPercent: 100 * l.Paced, ParkedPerSecond: then.Parked, WaitMs: 1e3 * then.Wait,
		},
		Limited: len(limited), LimitedFlows: limited[:min(list, len(limited))], LimitedNow: g.limitedNow(), Notes: then.Notes,
	}
	o.notes(p, g)
	return o
}

// notes adds what limits the accuracy of the figures.
func (o *ObservedPort) notes(p *observedPort, g *gather) {
	note := func(format string, args ...any) { o.Notes = append(o.Notes, fmt.Sprintf(format, args...)) }
	switch p.mode {
	case reading.EnforceAll:
		note("%s limits all flows of this port already: the measurements include its effect", p.law)
	case reading.EnforcePart:
		note("%s limits part of the flows of this port already: the measurements include its effect", p.law)
	}
	if n := g.unlisted; n > 0 {
		note("%d flows more than can be observed one by one", n)
	}
	if n := p.end.stats.OneSidedData; n > 0 {
		note("of %d flows only the data passes this switch: they cannot be limited", n)
	}
	if n := cameBy(p.begin.stats.TableFull, p.end.stats.TableFull); n > 0 {
		note("%.0f connections were not observed: the flow table was full", n)
	}
}
