package switchd

import (
	"path"
	"time"

	"weir/datapath/attach"
	"weir/datapath/reading"
)

// Enforce says where windows are held: on which ports, and of how many of their flows. The other ports, and
// the other flows, are only observed.
type Enforce struct {
	Ports   []string // names or patterns; empty: all
	Percent int      // of the flows of each, 0 to 100, chosen by a hash
}

// percent is how many of a port's flows are to be held.
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

const (
	ethernet    = 14
	tcpOverhead = ethernet + 20 + 20 + 12 // with IPv4 and timestamps
)

// line is what a port is like, whatever is held on it.
type line struct {
	rate   float64       // C, bytes/s
	rtt    time.Duration // configured: of flows when nothing queues
	target float64       // αB, bytes
	buffer float64       // B, bytes

	segment float64 // payload of the largest packet, bytes
}

// emptyPipe is C*R with nothing queued, in bytes. A handshake that took less than what is configured has
// seen the true round trip; one that took more may have waited in the queue.
func (l *line) bdp(handshake time.Duration) float64 {
	rtt := l.rtt
	if handshake > 0 {
		rtt = min(rtt, handshake)
	}
	return l.rate * rtt.Seconds()
}

// fullPipe is what is on its way and waiting while free flows fill the queue: what held flows are to have
// their share of, or the free ones would starve them. It is what a handshake took lately, queue and all,
// or the empty pipe and the queue, whichever is more: the least of the handshakes may have met a queue
// that was empty for a moment. With a full buffer it cannot be more.
//
// Half a segment of each flow is added: senders have whole segments in flight, so of a window the rest
// below one is lost to them.
func (l *line) bdpWithQueue(handshake time.Duration, queue float64, flows uint32) float64 {
	bdp := max(l.rate*handshake.Seconds(), l.bdp(handshake)+max(queue, 0))
	return min(bdp, l.rate*l.rtt.Seconds()+l.buffer) + float64(flows)*l.segment/2
}

const (
	bdpTimeConstant = 4 * time.Second // in which a pipe's length follows what is measured
	bdpStep         = 1.0 / 16        // a smaller change is not worth a write
)

// pipeLength is the length of a port's pipe as it is told to the kernel: it follows what is measured
// slowly, and without jumps.
type smoothedBDP struct{ follows, written float64 }

// measured moves it on by what was measured after such a time.
func (p *smoothedBDP) measured(bytes float64, after time.Duration) {
	if p.follows == 0 {
		p.follows = bytes
	}
	p.follows += (bytes - p.follows) * min(1, float64(after)/float64(bdpTimeConstant))
	if d := p.follows - p.written; d > bdpStep*p.written || -d > bdpStep*p.written {
		p.written = p.follows
	}
}

// stage is how far a port is.
type stage uint8

const (
	stageBefore     stage = iota // what holds without Weir is measured first
	stageEnforcing               // windows are held
	stageRolledBack              // a rule was broken: nothing is held until the configuration is read again
)

// canary is one port's way from observing to enforcing, and back.
type canary struct {
	line      line
	percent   int
	stage     stage
	bdp       smoothedBDP
	handshake time.Duration // the least that was measured; 0: none
	watch     *rollbackWatch
}

func newCanary(percent int, r *Rollback) *canary {
	c := &canary{percent: percent, stage: stageEnforcing}
	if percent == 0 || len(r.If) == 0 {
		return c
	}
	c.watch = newRollbackWatch(r, percent == 100)
	if c.watch.needsBefore() {
		c.stage = stageBefore
	}
	return c
}

// hold is what the port's law is to do now.
func (c *canary) mode() (reading.Hold, uint32) {
	share := uint32(c.percent * reading.Lots / 100)
	switch {
	case c.stage != stageEnforcing || c.percent <= 0:
		return reading.HoldNone, 0
	case c.percent >= 100:
		return reading.HoldAll, 0
	}
	return reading.HoldPart, share
}

// holding is what the port's law is to hold at its stage.
func (c *canary) enforcement() Enforcement {
	h := Enforcement{BDP: c.line.bdp(c.handshake)}
	if h.Mode, h.Share = c.mode(); h.Mode == reading.HoldPart {
		if h.BDP = c.bdp.written; h.BDP == 0 {
			h.BDP = c.line.bdpWithQueue(0, 0, 0)
		}
	}
	return h
}

// portReading is what is read of a port now and then.
type portReading struct {
	stats reading.Stats
	queue attach.RootQueue
	flows []reading.Flow // if the watch asked for them
}

// wantsReading says whether anything comes of reading the port.
func (c *canary) wantsReading() bool {
	return c.percent > 0 && c.stage != stageRolledBack && (c.percent < 100 || c.watch != nil)
}

// wantsQueue says whether its queue discipline is to be read with it.
func (c *canary) wantsQueue() bool { return c.watch != nil && c.stage != stageRolledBack }

// wantsFlows says whether the next reading is to have the flows one by one.
func (c *canary) wantsFlows() bool {
	return c.watch != nil && c.stage != stageRolledBack && c.watch.wantsFlows()
}

// read takes in a reading, some time after the one before it. It says what happened, if anything did: the
// law is then to be adjusted.
func (c *canary) read(r *portReading, after time.Duration) (event string) {
	c.bdp.measured(c.line.bdpWithQueue(r.stats.HandshakeRTT, float64(r.stats.QueueBytes), r.stats.Flows), after)
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
			return "too little passed to compare with: enforcing now, and rules that compare with the time before are not judged"
		}
		return "measured without holding anything: enforcing now"
	case c.stage == stageEnforcing:
		if reason := c.watch.judge.decide(); reason != "" {
			c.stage = stageRolledBack
			return reason
		}
	}
	return ""
}
