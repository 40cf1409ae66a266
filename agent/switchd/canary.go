package switchd

import (
	"path"
	"time"

	"weir/datapath/attach"
	"weir/datapath/reading"
)

// Enforce selects the ports, and the share of their flows, whose windows are limited. All other flows are only
// observed.
type Enforce struct {
	Ports   []string // names or patterns; empty: all
	Percent int      // of the flows of each, 0 to 100, chosen by a hash of the connection
}

// percent returns the share of a port's flows to limit, 0 to 100.
func (e *Enforce) percent(port string) int {
	if len(e.Ports) == 0 {
		return e.Percent
	}
	for _, p := range e.Ports {
		if ok, err := path.Match(p, port); p == port || err == nil && ok {
			return e.Percent
		}
	}
	return 0
}

// percent returns the share of a port's flows to limit, 0 to 100. rules are those of the configuration.
func (c *Config) percent(rules *rules, port string) int {
	if rule := rules.of(port); rule != nil && rule.Percent != nil {
		return *rule.Percent
	}
	return c.Enforce.percent(port)
}

const (
	ethernet    = 14
	tcpOverhead = ethernet + 20 + 20 + 12 // with IPv4 and timestamps
)

// line describes a port, independent of what is limited on it.
type line struct {
	rate   float64       // C, bytes/s
	rtt    time.Duration // configured round-trip time of flows with empty queues
	target float64       // αB, bytes
	buffer float64       // B, bytes

	segment float64 // payload of the largest packet, bytes
}

// bdp returns C*R with empty queues, in bytes. A handshake shorter than the configured RTT measured the true round
// trip; a longer one may include queueing, so it is ignored.
func (l *line) bdp(handshake time.Duration) float64 {
	rtt := l.rtt
	if handshake > 0 {
		rtt = min(rtt, handshake)
	}
	return l.rate * rtt.Seconds()
}

// bdpWithQueue returns the bytes in flight, queued ones included, while the unlimited flows of a canary fill the queue.
// The limited flows get their share of it; with less, the unlimited flows would starve them. It is C times the recent
// handshake RTT, which includes the queue, or BDP plus queue, whichever is larger: the shortest handshake may have met
// a queue that was empty for a moment. BDP plus buffer is the upper bound.
//
// Half a segment per flow is added: senders send whole segments, so on average half a segment of each window stays
// unused.
func (l *line) bdpWithQueue(handshake time.Duration, queue float64, flows uint32) float64 {
	bdp := max(l.rate*handshake.Seconds(), l.bdp(handshake)+max(queue, 0))
	return min(bdp, l.rate*l.rtt.Seconds()+l.buffer) + float64(flows)*l.segment/2
}

const (
	bdpTimeConstant = 4 * time.Second        // with which the value follows the measurements, at most
	bdpTimeLeast    = 400 * time.Millisecond // at least: some samples of the queue
	bdpStep         = 1.0 / 16               // smaller relative changes are not written to the kernel
)

// smoothedBDP is a port's BDP as written to the kernel: a mean over the latest time, which changes without jumps. Only
// time with flows counts: an idle port has an empty queue, and a mean over that would starve the limited flows when
// load begins. So the mean begins anew after a pause.
type smoothedBDP struct {
	within           time.Duration // the mean covers at most this time
	covers           time.Duration // the time that it covers now
	follows, written float64
}

// measured updates the value with a measurement of bytes, taken after the given time.
func (p *smoothedBDP) measured(bytes float64, after time.Duration) {
	p.covers = min(p.covers+after, p.within)
	if p.follows == 0 || p.covers <= after {
		p.follows = bytes
	} else {
		p.follows += (bytes - p.follows) * float64(after) / float64(p.covers)
	}
	if d := p.follows - p.written; d > bdpStep*p.written || -d > bdpStep*p.written {
		p.written = p.follows
	}
}

// idle shortens the time that the mean covers by a time without flows: the load that comes may differ.
func (p *smoothedBDP) idle(after time.Duration) { p.covers = max(p.covers-after, 0) }

// stage is the stage of a port's canary.
type stage uint8

const (
	stageBefore     stage = iota // measures how the port behaves without Weir
	stageEnforcing               // limits windows
	stageRolledBack              // a rule was broken: nothing is limited until the configuration is read again
)

// canary is the state of one port between observing and enforcing.
type canary struct {
	line      line
	percent   int
	stage     stage
	bdp       smoothedBDP
	handshake time.Duration // shortest one measured; 0: none
	watch     *rollbackWatch
}

func newCanary(percent int, r *Rollback) *canary {
	c := &canary{percent: percent, stage: stageEnforcing, bdp: smoothedBDP{within: bdpTimeConstant}}
	if percent == 0 || len(r.If) == 0 {
		return c
	}
	c.watch = newRollbackWatch(r, percent == 100)
	// A window that is late by more than a part would be judged as if the law had wanted it so.
	c.bdp.within = max(min(bdpTimeConstant, c.watch.part), bdpTimeLeast)
	if c.watch.needsBefore() {
		c.stage = stageBefore
	}
	return c
}

// mode returns which flows the port's law must limit now, and how many buckets of them.
func (c *canary) mode() (reading.Mode, uint32) {
	share := uint32(c.percent * reading.Buckets / 100)
	switch {
	case c.stage != stageEnforcing || c.percent <= 0:
		return reading.EnforceNone, 0
	case c.percent >= 100:
		return reading.EnforceAll, 0
	}
	return reading.EnforcePart, share
}

// enforcement returns what the port's law must limit at its stage.
func (c *canary) enforcement() Enforcement {
	h := Enforcement{BDP: c.line.bdp(c.handshake)}
	if h.Mode, h.Share = c.mode(); h.Mode == reading.EnforcePart {
		if h.BDP = c.bdp.written; h.BDP == 0 {
			h.BDP = c.line.bdpWithQueue(0, 0, 0)
		}
	}
	return h
}

// portReading is one periodic reading of a port.
type portReading struct {
	stats reading.Stats
	queue attach.RootQueue
	flows []reading.Flow // if wantsFlows asked for them
}

// wantsReading reports whether the port must be read at all.
func (c *canary) wantsReading() bool {
	return c.percent > 0 && c.stage != stageRolledBack && (c.percent < 100 || c.watch != nil)
}

// wantsQueue reports whether its queue discipline must be read, too.
func (c *canary) wantsQueue() bool { return c.watch != nil && c.stage != stageRolledBack }

// wantsFlows reports whether the next reading must list the flows one by one.
func (c *canary) wantsFlows() bool {
	return c.watch != nil && c.stage != stageRolledBack && c.watch.wantsFlows()
}

// read processes a reading taken some time after the one before. It returns a description of what happened, or "".
// After an event the law must be configured again.
func (c *canary) read(r *portReading, after time.Duration) (event string) {
	if n := r.stats.Flows; n > 0 {
		c.bdp.measured(c.line.bdpWithQueue(r.stats.HandshakeRTT, float64(r.stats.QueueBytes), n), after)
	} else {
		c.bdp.idle(after)
	}
	if h := r.stats.HandshakeRTT; h > 0 && (c.handshake == 0 || h < c.handshake) {
		c.handshake = h
	}
	if c.watch == nil || c.stage == stageRolledBack {
		return ""
	}
	whole := c.watch.read(r, &c.line, c.stage, after)
	switch {
	case !whole:
	case c.stage == stageBefore && c.watch.knowsBefore():
		c.stage = stageEnforcing
		c.watch.begin()
		if !c.watch.judge.hasBase() {
			return "too little traffic to compare with: enforcing now; rules that compare with the time before are ignored"
		}
		return "measured the port without limiting it: enforcing now"
	case c.stage == stageEnforcing:
		if reason := c.watch.judge.decide(); reason != "" {
			c.stage = stageRolledBack
			return reason
		}
	}
	return ""
}
