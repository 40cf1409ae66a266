package switchd

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"weir/law"
)

// changesListed limits the changes listed in an answer; there may be one per port.
const changesListed = 100

// transaction is a change of several steps that is applied completely or not at all.
type transaction struct {
	undo    []func() error
	changes []string
}

// done records how to undo the step just made, and its description; "": none.
func (t *transaction) done(undo func() error, changes string) {
	t.undo = append(t.undo, undo)
	if changes != "" {
		t.changes = append(t.changes, changes)
	}
}

// back undoes all steps, the latest first.
func (t *transaction) back() error {
	var errs []error
	for _, undo := range slices.Backward(t.undo) {
		errs = append(errs, undo())
	}
	t.undo = nil
	return errors.Join(errs...)
}

// reload reads the file again and applies it completely, or not at all.
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
		return nil, errors.New("this switch was started without a file (-f): there is no file to read again; start it with -f FILE, or restart it with the new options")
	}
	next, err := r.cfg.agent.Load(r.cfg.File)
	if err != nil {
		return nil, err
	}
	next.Options = r.cfg.Options
	if next.Name != r.cfg.Name {
		return nil, fmt.Errorf("%s: name: %s became %s, but a running switch cannot change its name: restart it", r.cfg.File, r.cfg.Name, next.Name)
	}
	if !r.cfg.SameLaws(next) {
		return nil, fmt.Errorf("%s: the laws were %s and became %s, but a running switch cannot change its laws: restart it", r.cfg.File, titles(r.cfg.Laws), titles(next.Laws))
	}
	return r.become(next)
}

// become applies the configuration next. On error everything is as before.
func (r *role) become(next *Config) ([]string, error) {
	was, wasRules, wasCanaries := r.cfg, r.rules, r.canaries
	wasPorts, wasRefused := maps.Clone(r.ports), maps.Clone(r.refused)
	r.cfg, r.rules, r.canaries = next, newRules(next.laws(), next.Ports), keptCanaries(was, next, r.canaries)
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
	// The rest follows from the new state: ports to release, shapers to remove.
	if err := r.follow(); err != nil {
		r.log.Warn("cannot adapt to the changed devices", "error", err)
	}
	return append(t.changes, measuredFirst(wasCanaries, r.canaries, r.cfg.Rollback.Over)...), nil
}

// measuredFirst describes the ports that are measured again before anything is limited on them.
func measuredFirst(was, is map[string]*canary, over law.Duration) []string {
	var changes []string
	for _, port := range slices.Sorted(maps.Keys(is)) {
		if c := is[port]; c != was[port] && c.stage == stageBefore {
			changes = append(changes, fmt.Sprintf("port %s: limits nothing for %v and measures; then limits %d %% of its flows", port, over, c.percent))
		}
	}
	return changes
}

// keptCanaries returns the canaries of ports whose enforcement does not change. A port that was rolled back gets
// another chance.
func keptCanaries(was, next *Config, all map[string]*canary) map[string]*canary {
	kept := map[string]*canary{}
	if !reflect.DeepEqual(was.Rollback, next.Rollback) {
		return kept
	}
	rules := newRules(nil, next.Ports)
	for name, c := range all {
		if c.stage != stageRolledBack && c.percent == next.percent(rules, name) {
			kept[name] = c
		}
	}
	return kept
}

// takeSteps changes one thing after the other, those most likely to fail first.
func (r *role) takeSteps(was *Config, t *transaction) error {
	found, err := r.look()
	if err != nil {
		return err
	}
	now := byName(found)
	for i := range found {
		c := &found[i]
		if c.err != nil && c.byName && r.refused[c.name] != c.err.Error() { // a port that was refused before may stay so
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
			continue // follow handles it
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

// changeMetrics moves the metrics to another address.
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

// changeCommon changes what all ports share.
func (r *role) changeCommon(was *Config, t *transaction) error {
	before, next := was.settings(), r.cfg.settings()
	same := func(a, b Setting) bool { return reflect.DeepEqual(a.Common, b.Common) }
	if slices.EqualFunc(before, next, same) {
		return nil
	}
	undo, err := r.attached.Change(next...)
	if err != nil {
		return err
	}
	t.done(undo, "")
	for i := range next {
		t.changes = append(t.changes, changedKeys(before[i].Common.Keys, next[i].Common.Keys)...)
	}
	if was, is := fmt.Sprint(was.Scope), fmt.Sprint(r.cfg.Scope); was != is {
		t.changes = append(t.changes, fmt.Sprintf("scope: %s became %s", was, is))
	}
	return nil
}

// changedKeys describes the differences between two structs of keys, one per key.
func changedKeys(was, is any) (changes []string) {
	a, b := reflect.Indirect(reflect.ValueOf(was)), reflect.Indirect(reflect.ValueOf(is))
	for i := range a.NumField() {
		key, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
		if from, to := fmt.Sprint(a.Field(i).Interface()), fmt.Sprint(b.Field(i).Interface()); from != to {
			changes = append(changes, fmt.Sprintf("%s: %s became %s", key, from, to))
		}
	}
	return changes
}

// changePort changes the law's parameters or the shaper of a port, or attaches to a new port.
func (r *role) changePort(c *candidate, t *transaction) error {
	r.alive()
	p, on := r.ports[c.name]
	switch {
	case on && (p.Ifindex != c.ifindex || r.refused[c.name] != ""):
		return nil // follow handles it
	case c.has != (tbf{}) && c.tbf != (tbf{}) && c.has != c.tbf:
		if err := r.shapes.change(c.name, c.ifindex, c.tbf); err != nil {
			return err
		}
		t.done(func() error { return r.shapes.change(c.name, c.ifindex, c.has) }, fmt.Sprintf("port %s: shaped to %v", c.name, c.tbf.Rate))
	case c.toMake():
		undo, err := r.shapeNew(c)
		if err != nil {
			return err
		}
		t.done(undo, fmt.Sprintf("port %s: shaped to %v", c.name, c.tbf.Rate))
	}
	switch {
	case !on:
		if err := r.attached.Attach(c.port()); err != nil {
			return err
		}
		t.done(func() error { return r.attached.Remove(c.name) }, "port "+c.name+": attached")
		r.noteAttached(c.port())
	case !slices.Equal(p.Params, c.params):
		if err := r.attached.Attach(c.port()); err != nil {
			return errors.Join(err, r.attached.Attach(p))
		}
		differs := cmp.Or(r.differs(p.Params, c.params), "its parameters changed")
		t.done(func() error { return r.attached.Attach(p) }, fmt.Sprintf("port %s: %s", c.name, differs))
		r.ports[c.name] = c.port()
	}
	return nil
}

// removeUnwanted releases and detaches the ports that no rule matches any more.
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
			errs = append(errs, r.attached.Attach(ports[name]))
		}
		return errors.Join(errs...)
	}
	if err := r.attached.Remove(gone...); err != nil {
		return errors.Join(err, back())
	}
	t.done(back, "")
	for _, name := range gone {
		t.changes = append(t.changes, "port "+name+": detached")
		delete(r.ports, name)
		delete(r.refused, name)
	}
	return nil
}

// clearNotes removes the notes of ports that were rolled back.
func (r *role) clearNotes(was map[string]*canary) error {
	for _, c := range was {
		if c.stage == stageRolledBack {
			return r.attached.Note("", "")
		}
	}
	return nil
}
