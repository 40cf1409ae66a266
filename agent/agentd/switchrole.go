package agentd

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"weir/agent/switchd"
	"weir/bus/weirv1"
	"weir/datapath/attach"
	"weir/datapath/telemetry"
	"weir/internal/alarm"
	"weir/law"
)

// switchRole reports what the ports of this switch count. The goroutine of the agent owns it. Readings run on a goroutine of
// their own, which uses only what mu guards.
type switchRole struct {
	cfg      *Switch
	log      *slog.Logger
	alive    func() // called while something long makes progress
	room     int    // of t, in ports
	again    retry
	attached map[uint32]attachedPort   // by number
	sources  map[netip.Addr]law.VM     // that t has
	wrong    problems                  // ports that are not attached
	failed   string                    // why there is no telemetry at all
	devices  map[string]switchd.Device // those that exist, at the last look
	alarm    *alarm.Alarm              // of readings

	mu    sync.Mutex
	t     *telemetry.Telemetry // nil: none yet
	flows *progress            // nil: no law asks for it
	reads readings
}

// attachedPort is what a port was attached as.
type attachedPort struct {
	name    string
	ifindex int
}

// spare is room for ports that a reload adds.
const spare = 64

func newSwitchRole(cfg *Switch, log *slog.Logger, send sender, alive func()) (*switchRole, error) {
	at, err := alarm.New()
	if err != nil {
		return nil, err
	}
	log = log.With("number", cfg.Number)
	r := &switchRole{
		cfg: cfg, log: log, alive: alive, attached: map[uint32]attachedPort{}, sources: map[netip.Addr]law.VM{}, wrong: newProblems(log),
		failed: "not begun", alarm: at,
	}
	r.reads = newReadings(send, log, cfg.Interval)
	return r, nil
}

// follow attaches to ports that appear, and leaves ports that are gone.
func (r *switchRole) follow(devices map[string]switchd.Device) {
	r.devices = devices
	if r.t == nil && !r.begin() {
		return
	}
	r.wrong.report(r.apply(r.cfg, devices))
}

// begin makes the tables, unless a recent attempt failed.
func (r *switchRole) begin() bool {
	if !r.again.due() {
		return false
	}
	room := len(r.cfg.Ports) + spare
	t, err := open(r.cfg, room)
	if err != nil {
		r.again.failed()
		if why := remedy(err); r.failed != why {
			r.failed = why
			r.log.Warn("no telemetry", "reason", why)
		}
		return false
	}
	r.again, r.failed = retry{}, ""
	r.replace(t, room, r.cfg.Signals)
	return true
}

// open makes tables with room for so many ports.
func open(cfg *Switch, room int) (*telemetry.Telemetry, error) {
	return telemetry.Attach(nil, telemetry.Config{Switch: cfg.Number, Idle: cfg.Idle, Signals: cfg.Signals, Room: room})
}

// replace continues with other tables, without ports yet.
func (r *switchRole) replace(t *telemetry.Telemetry, room int, signals []law.Signal) {
	flows := r.openProgress(signals)
	r.mu.Lock()
	before, flowsBefore := r.t, r.flows
	r.t, r.flows = t, flows
	r.mu.Unlock()
	flowsBefore.close(r.log)
	r.attached, r.sources, r.room = map[uint32]attachedPort{}, map[netip.Addr]law.VM{}, room
	if before == nil {
		return
	}
	if err := before.Close(); err != nil {
		r.log.Warn("cannot detach the telemetry before", "error", err)
	}
}

// apply attaches to the ports of cfg that exist, and to no others. It returns what is wrong with the others, by name.
func (r *switchRole) apply(cfg *Switch, devices map[string]switchd.Device) map[string]string {
	wrong := map[string]string{}
	wanted := map[uint32]attachedPort{}
	for _, p := range cfg.Ports {
		if d, there := devices[p.Name]; there {
			wanted[p.Number] = attachedPort{p.Name, d.Ifindex}
		} else {
			wrong["port "+p.Name] = "there is no such device: waiting for it"
		}
	}
	for n, was := range maps.Clone(r.attached) {
		if wanted[n] == was {
			continue
		}
		if err := errors.Join(r.t.Remove(n), r.flows.remove(n)); err != nil {
			r.log.Warn("cannot detach", "port", was.name, "error", err)
		}
		delete(r.attached, n)
		r.log.Info("telemetry detached", "port", was.name)
	}
	for _, n := range slices.Sorted(maps.Keys(wanted)) {
		p := wanted[n]
		if r.attached[n] == p {
			continue
		}
		r.alive()
		ref := attach.PortRef{Name: p.name, Ifindex: p.ifindex}
		err := r.t.Add(telemetry.Port{PortRef: ref, N: n})
		if err == nil {
			if err = r.flows.add(ref, n); err != nil {
				err = errors.Join(err, r.t.Remove(n))
			}
		}
		if err != nil {
			wrong["port "+p.name] = remedy(err)
			continue
		}
		r.attached[n] = p
		r.log.Info("telemetry attached", "port", p.name, "port_number", n, "ifindex", p.ifindex)
	}
	for who, why := range r.setSources(cfg.Sources) {
		wrong[who] = why
	}
	r.forget(cfg)
	return wrong
}

// setSources has the addresses of VMs in the tables, and no others.
func (r *switchRole) setSources(wanted map[netip.Addr]law.VM) map[string]string {
	wrong := map[string]string{}
	set := func(a netip.Addr, vm law.VM) {
		if err := r.t.SetSource(a, vm); err != nil {
			wrong[fmt.Sprintf("source %v", a)] = err.Error()
			return
		}
		r.sources[a] = vm
	}
	for a := range maps.Clone(r.sources) {
		if wanted[a] == 0 {
			set(a, 0)
			delete(r.sources, a)
		}
	}
	for a, vm := range wanted {
		if r.sources[a] != vm {
			set(a, vm)
		}
	}
	return wrong
}

// forget drops the totals of ports that are no longer configured.
func (r *switchRole) forget(cfg *Switch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.reads.totals.Ports() {
		if !slices.ContainsFunc(cfg.Ports, func(p Port) bool { return p.Number == n }) {
			r.reads.totals.Forget(n)
		}
	}
}

// become applies another configuration, completely or not at all.
func (r *switchRole) become(next *Switch, devices map[string]switchd.Device) ([]string, error) {
	was := r.cfg
	if r.t != nil {
		replaced := false
		if was.Idle != next.Idle || !slices.Equal(was.Signals, next.Signals) || len(next.Ports) > r.room {
			room := len(next.Ports) + spare
			t, err := open(next, room)
			if err != nil {
				return nil, err
			}
			r.replace(t, room, next.Signals)
			replaced = true
		}
		var errs []error
		wrong := r.apply(next, devices)
		for who, why := range wrong {
			if r.wrong.of(who) != why && !r.isMissing(who, devices) {
				errs = append(errs, fmt.Errorf("%s: %s", who, why))
			}
		}
		if err := errors.Join(errs...); err != nil {
			r.restore(was, devices, replaced)
			return nil, err
		}
		r.wrong.report(wrong)
	}
	r.cfg, r.devices = next, devices
	r.mu.Lock()
	r.reads.every = next.Interval
	r.mu.Unlock()
	changes := differences(was.Ports, next.Ports, func(p *Port) (string, any) { return "port " + p.Name, *p })
	for _, c := range []struct {
		key     string
		was, is any
	}{{"interval", was.Interval, next.Interval}, {"idle", was.Idle, next.Idle}, {"signals", was.Signals, next.Signals}} {
		if !reflect.DeepEqual(c.was, c.is) {
			changes = append(changes, fmt.Sprintf("%s: %v became %v", c.key, c.was, c.is))
		}
	}
	if !maps.Equal(was.Sources, next.Sources) {
		changes = append(changes, "sources: changed")
	}
	return changes, nil
}

// restore continues with the configuration before a refused reload. replaced: the tables have the refused signals, or its idle time.
func (r *switchRole) restore(was *Switch, devices map[string]switchd.Device, replaced bool) {
	if replaced {
		room := len(was.Ports) + spare
		t, err := open(was, room)
		if err != nil { // follow tries again
			r.log.Warn("after the refused reload: no telemetry", "reason", remedy(err))
			if err := r.end(); err != nil {
				r.log.Warn("cannot detach the telemetry", "error", err)
			}
			r.attached, r.again, r.failed = map[uint32]attachedPort{}, retry{}, remedy(err)
			return
		}
		r.replace(t, room, was.Signals)
	}
	for who, why := range r.apply(was, devices) {
		r.log.Warn("after the refused reload", "of", who, "reason", why)
	}
}

// isMissing reports whether a port does not exist. It is waited for.
func (r *switchRole) isMissing(who string, devices map[string]switchd.Device) bool {
	name, isPort := cutPort(who)
	_, there := devices[name]
	return isPort && !there
}

// inventory lists the ports that the agent reports about.
func (r *switchRole) inventory() (out []*weirv1.SwitchPort) {
	for _, p := range r.cfg.Ports {
		if _, on := r.attached[p.Number]; on {
			d := r.devices[p.Name]
			out = append(out, &weirv1.SwitchPort{
				Port: p.Number, Name: p.Name, Rate: min(uint64(cmp.Or(p.Rate, d.Rate)), weirv1.MaxRate), BufferBytes: uint64(cmp.Or(p.Buffer, d.Buffer)),
				Labels: p.Labels, Peer: p.Peer,
			})
		}
	}
	return out
}

// end detaches from all ports.
func (r *switchRole) end() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.t == nil {
		return nil
	}
	err := r.t.Close()
	r.t = nil
	r.flows.close(r.log)
	r.flows = nil
	return err
}

// run reads the ports every T until stop.
func (r *switchRole) run(stop <-chan struct{}) {
	r.reads.run(r.alarm, stop, func() time.Duration {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.t != nil {
			r.reads.read(r.t, r.flows)
		}
		return r.reads.every
	})
}
