package switchd

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"weir/law"
)

// changesTold is how many changes an answer lists; there may be one for each port.
const changesListed = 100

// transaction is a change of several steps, of which all hold or none.
type transaction struct {
	undo    []func() error
	changes []string
}

// done notes how the step that was just done is undone, and what it was; "": nothing to speak of.
func (t *transaction) done(undo func() error, changes string) {
	t.undo = append(t.undo, undo)
	if changes != "" {
		t.changes = append(t.changes, changes)
	}
}

// back undoes all steps, the last one first.
func (t *transaction) back() error {
	var errs []error
	for _, undo := range slices.Backward(t.undo) {
		errs = append(errs, undo())
	}
	t.undo = nil
	return errors.Join(errs...)
}

// reload reads the file again and makes the switch what it says, all of it or nothing.
func (r *role) reload() Answer {
	done := r.notify.reloading()
	defer done()
	changes, err := r.reread()
	r.events.reloaded(err)
	r.notify.reloaded(len(r.ports), err)
	if err != nil {
		r.log.Error("reload refused, nothing has changed", "reason", err.Error())
		return Answer{Refused: err.Error(), Changes: []string{}}
	}
	r.log.Info("reloaded", "changes", len(changes))
	r.warnOld()
	if more := len(changes) - changesListed; more > 0 {
		changes = append(changes[:changesListed:changesListed], fmt.Sprintf("and %d more", more))
	}
	return Answer{Changes: append([]string{}, changes...)}
}

func (r *role) reread() ([]string, error) {
	if r.cfg.File == "" {
		return nil, errors.New("this switch was started without a file (-f): there is nothing to read again")
	}
	next, err := r.cfg.agent.Load(r.cfg.File)
	if err != nil {
		return nil, err
	}
	next.Options = r.cfg.Options
	if next.Name != r.cfg.Name {
		return nil, fmt.Errorf("%s: name: %s became %s: the name is not changed while it runs: restart", r.cfg.File, r.cfg.Name, next.Name)
	}
	return r.become(next)
}

// become makes the switch what next says. With an error it is what it was.
func (r *role) become(next *Config) ([]string, error) {
	was, wasRules, wasCanaries := r.cfg, r.rules, r.canaries
	wasPorts, wasRefused := maps.Clone(r.ports), maps.Clone(r.refused)
	r.cfg, r.rules, r.canaries = next, newRules(r.law, next.Ports), keptCanaries(was, next, r.canaries)
	r.rules.made = r.shapes
	var t transaction
	err := r.takeSteps(was, &t)
	if err == nil {
		err = r.clearNotes(wasCanaries)
	}
	if err != nil {
		r.cfg, r.rules, r.canaries = was, wasRules, wasCanaries
		back := t.back()
		r.ports, r.refused = wasPorts, wasRefused
		return nil, errors.Join(err, back)
	}
	// What remains follows from what holds now: a port that is let go, a shaper that nobody wants.
	if err := r.follow(); err != nil {
		r.log.Warn("cannot follow the devices", "error", err)
	}
	return append(t.changes, measuredFirst(wasCanaries, r.canaries, r.cfg.Rollback.Over)...), nil
}

// measuredFirst says of which ports it is measured anew what holds without Weir, and what follows.
func measuredFirst(was, is map[string]*canary, over law.Duration) []string {
	var changes []string
	for _, port := range slices.Sorted(maps.Keys(is)) {
		if c := is[port]; c != was[port] && c.stage == stageBefore {
			changes = append(changes, fmt.Sprintf("port %s: holds nothing for %v and measures; then %d %% of its flows", port, over, c.percent))
		}
	}
	return changes
}

// keptCanaries are those of ports for which nothing is enforced otherwise. One that was rolled back gets
// another chance.
func keptCanaries(was, next *Config, all map[string]*canary) map[string]*canary {
	kept := map[string]*canary{}
	if !reflect.DeepEqual(was.Rollback, next.Rollback) {
		return kept
	}
	for name, c := range all {
		if c.stage != stageRolledBack && c.percent == next.Enforce.percent(name) {
			kept[name] = c
		}
	}
	return kept
}

// takeSteps changes one thing after the other, those first that most likely cannot be.
func (r *role) takeSteps(was *Config, t *transaction) error {
	found, err := r.look()
	if err != nil {
		return err
	}
	now := byName(found)
	for i := range found {
		c := &found[i]
		if c.err != nil && c.byName && r.refused[c.name] != c.err.Error() { // those that were refused before may stay so
			return c.err
		}
	}
	if err := r.changeMetrics(was, t); err != nil {
		return err
	}
	if err := r.changeCommon(was, t); err != nil {
		return err
	}
	for i := range found {
		if found[i].err != nil {
			continue // follow sees to it
		}
		if err := r.changePort(&found[i], t); err != nil {
			return err
		}
	}
	undo, err := r.marks.change(r.wantedMarks(now))
	if err != nil {
		return err
	}
	t.done(undo, "")
	return r.removeUnwanted(t)
}

// changeBeside changes what runs beside the law.
func (r *role) changeMetrics(was *Config, t *transaction) error {
	if was.Metrics == r.cfg.Metrics || r.metrics == nil {
		return nil
	}
	if err := r.metrics.Listen(r.cfg.Metrics.Listen, false); err != nil {
		return err
	}
	t.done(func() error { return r.metrics.Listen(was.Metrics.Listen, true) }, fmt.Sprintf("metrics: %q became %q", was.Metrics.Listen, r.cfg.Metrics.Listen))
	return nil
}

// changeCommon changes what all ports have in common.
func (r *role) changeCommon(was *Config, t *transaction) error {
	before, next := was.common(), r.cfg.common()
	if reflect.DeepEqual(before, next) {
		return nil
	}
	undo, err := r.running.Change(next)
	if err != nil {
		return err
	}
	t.done(undo, "")
	t.changes = append(t.changes, r.law.Changes(before, next)...)
	return nil
}

// changePort changes the law or the shaper of a port, or attaches to one that is new.
func (r *role) changePort(c *candidate, t *transaction) error {
	r.alive()
	p, on := r.ports[c.name]
	switch {
	case on && (p.Ifindex != c.ifindex || r.refused[c.name] != ""):
		return nil // follow sees to it
	case c.has != (tbf{}) && c.tbf != (tbf{}) && c.has != c.tbf:
		if err := r.shapes.change(c.name, c.ifindex, c.mtu, c.tbf); err != nil {
			return err
		}
		t.done(func() error { return r.shapes.change(c.name, c.ifindex, c.mtu, c.has) }, fmt.Sprintf("port %s: shaped to %v", c.name, c.tbf.Rate))
	case c.toMake():
		undo, err := r.shapeNew(c)
		if err != nil {
			return err
		}
		t.done(undo, fmt.Sprintf("port %s: shaped to %v", c.name, c.tbf.Rate))
	}
	switch {
	case !on:
		if err := r.running.Attach(c.port()); err != nil {
			return err
		}
		t.done(func() error { return r.running.Remove(c.name) }, "port "+c.name+": attached")
		r.attached(c.port())
	case p.Params != c.params:
		if err := r.running.Configure(c.name, c.params); err != nil {
			return errors.Join(err, r.running.Configure(c.name, p.Params))
		}
		t.done(func() error { return r.running.Configure(c.name, p.Params) }, fmt.Sprintf("port %s: %s", c.name, c.params.Differs(p.Params)))
		r.ports[c.name] = c.port()
	}
	return nil
}

// removeUnwanted takes the law off the ports that no rule matches any more, gradually.
func (r *role) removeUnwanted(t *transaction) error {
	var gone []string
	for _, name := range slices.Sorted(maps.Keys(r.ports)) {
		if r.rules.of(name) == nil {
			gone = append(gone, name)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	ports := maps.Clone(r.ports)
	back := func() error {
		var errs []error
		for _, name := range gone {
			if !r.running.On(name) {
				errs = append(errs, r.running.Attach(ports[name]))
			}
		}
		return errors.Join(errs...)
	}
	if err := r.running.Remove(gone...); err != nil {
		return errors.Join(err, back())
	}
	t.done(back, "")
	for _, name := range gone {
		t.changes = append(t.changes, "port "+name+": left")
		delete(r.ports, name)
		delete(r.refused, name)
	}
	return nil
}

// sayNothing takes back what was said of ports that were rolled back.
func (r *role) clearNotes(was map[string]*canary) error {
	for _, c := range was {
		if c.stage == stageRolledBack {
			return r.running.ClearNotes()
		}
	}
	return nil
}
