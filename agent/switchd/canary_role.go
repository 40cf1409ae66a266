package switchd

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/datapath/attach"
	"weir/datapath/reading"
)

// canaryIntervalMax is how often ports are read if only their BDP must be followed.
const canaryIntervalMax = time.Second

// rolledBackMost limits how many deleted ports are remembered as rolled back.
const rolledBackMost = 1024

// look lists the devices that the configuration names, with the law's parameters for the stage of each.
func (r *role) look() ([]candidate, error) {
	found, err := r.rules.look()
	if err != nil {
		return nil, err
	}
	if r.canaries == nil {
		r.canaries = map[string]*canary{}
	}
	here := map[string]bool{}
	for i := range found {
		c := &found[i]
		here[c.name] = true
		if c.err != nil {
			continue
		}
		own := r.canaries[c.name]
		if own == nil {
			own = newCanary(r.cfg.percent(r.rules, c.name), &r.cfg.Rollback)
			r.canaries[c.name] = own
			r.logStage(c.name, own)
		}
		own.line = c.line
		c.enforce(own.enforcement())
	}
	r.forgetCanaries(here)
	return found, nil
}

// forgetCanaries forgets deleted ports, but not those rolled back, which must not be enforced if they reappear.
func (r *role) forgetCanaries(here map[string]bool) {
	remembered := 0
	for name, c := range r.canaries {
		if here[name] {
			continue
		}
		if c.stage == stageRolledBack && remembered < rolledBackMost {
			remembered++
			continue
		}
		delete(r.canaries, name)
	}
}

func (r *role) logStage(port string, c *canary) {
	switch {
	case c.stage == stageBefore:
		r.log.Info("measuring first, without limiting anything", "port", port, "for", r.cfg.Rollback.Over.String(), "then_percent", c.percent)
	case c.percent == 0:
		r.log.Info("observing only", "port", port)
	case c.percent < 100:
		r.log.Info("canary", "port", port, "percent", c.percent)
	}
}

// canaryInterval returns how often readCanaries must be called; 0: never, because all flows of all ports are limited
// and there is no rollback rule.
func (r *role) canaryInterval() time.Duration {
	every := time.Duration(0)
	if len(r.cfg.Rollback.If) > 0 {
		every = min(newRollbackWatch(&r.cfg.Rollback, false).interval(), canaryIntervalMax)
	} else if r.cfg.Enforce.Percent < 100 || len(r.cfg.Enforce.Ports) > 0 || slices.ContainsFunc(r.cfg.Ports, func(p PortRule) bool { return p.Percent != nil && *p.Percent < 100 }) {
		every = canaryIntervalMax
	}
	return every
}

// readCanaries reads the ports whose stage or BDP may change, and applies the changes.
func (r *role) readCanaries(now time.Time) error {
	read, err := r.readPorts()
	if err != nil {
		return err // the next reading covers the time of this one
	}
	after := now.Sub(r.canariesRead)
	if r.canariesRead.IsZero() {
		after = 0
	}
	r.canariesRead = now
	changed := false
	var errs []error
	for port, p := range read {
		c := r.canaries[port]
		written, was := c.bdp.written, c.stage
		if event := c.read(p, after); event != "" {
			errs = append(errs, r.stageChanged(port, c, event))
		}
		changed = changed || c.stage != was || c.bdp.written != written
	}
	if changed {
		errs = append(errs, r.follow())
	}
	return errors.Join(errs...)
}

// stageChanged logs what happened to a port. If its flows are no longer limited, it notes that in the kernel for
// status.
func (r *role) stageChanged(port string, c *canary, event string) error {
	if c.stage != stageRolledBack {
		r.log.Info(event, "port", port, "percent", c.percent)
		return nil
	}
	r.events.rolledBack()
	err := r.attached.Note(port, fmt.Sprintf("rolled back: %s", event))
	r.log.Warn("rolled back: windows are released, and not limited again before a reload or a restart", "port", port, "percent", c.percent, "reason", event)
	return err
}

// readPorts reads the ports that need it: counters, and where needed queues and flows.
func (r *role) readPorts() (map[string]*portReading, error) {
	stats, err := r.attached.Stats()
	if err != nil {
		return nil, err
	}
	read, queues, flows := map[string]*portReading{}, map[string]*portReading{}, map[string]*portReading{}
	for i := range stats {
		port := stats[i].Port
		c := r.canaries[port]
		if c == nil || !c.wantsReading() {
			continue
		}
		p := &portReading{stats: stats[i]}
		read[port] = p
		if c.wantsQueue() {
			queues[port] = p
		}
		if c.wantsFlows() {
			flows[port] = p
		}
	}
	if err := r.readQueues(queues); err != nil {
		return nil, err
	}
	return read, r.readFlows(flows)
}

// readQueues reads the queues of these ports in one request.
func (r *role) readQueues(read map[string]*portReading) error {
	if len(read) == 0 {
		return nil
	}
	all, err := attach.ReadRootQueues()
	if err != nil {
		return err
	}
	for port, p := range read {
		p.queue = all.Of(r.ports[port].Ifindex)
	}
	return nil
}

// readFlows reads the flows of these ports in one pass over the table.
func (r *role) readFlows(read map[string]*portReading) error {
	if len(read) == 0 {
		return nil
	}
	return r.attached.EachFlow(func(port string, f reading.Flow) bool {
		if p := read[port]; p != nil && len(p.flows) < watchFlows && !f.OneSided && !f.Signed {
			p.flows = append(p.flows, f)
		}
		return true
	})
}

// pace is a ticker that may be off.
type pace struct {
	c      <-chan time.Time
	ticker *time.Ticker
}

func newPace(every time.Duration) *pace {
	if every <= 0 {
		return &pace{}
	}
	t := time.NewTicker(every)
	return &pace{t.C, t}
}

func (p *pace) stop() {
	if p.ticker != nil {
		p.ticker.Stop()
	}
}

// again stops p and returns a pace with another interval.
func (p *pace) again(every time.Duration) *pace {
	p.stop()
	return newPace(every)
}
