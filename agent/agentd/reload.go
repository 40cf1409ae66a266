package agentd

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"

	"github.com/coreos/go-systemd/v22/daemon"

	"weir/agent/switchd"
)

// changesListed limits the changes listed in an answer.
const changesListed = 100

// reload reads the file again and applies it completely, or not at all.
func (a *agent) reload() switchd.Answer {
	a.notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
	defer a.notify(daemon.SdNotifyReady)
	a.events.reloads++
	changes, err := a.reread()
	a.changed()
	if err != nil {
		a.events.refused++
		a.log.Error("reload refused, nothing has changed", "reason", err.Error())
		return switchd.Answer{Refused: err.Error(), Changes: []string{}}
	}
	a.log.Info("reloaded", "changes", len(changes))
	return switchd.Answer{Changes: append([]string{}, least(changes, changesListed)...)}
}

func (a *agent) reread() ([]string, error) {
	if a.cfg.File == "" {
		return nil, errors.New("this agent was started without a file: there is none to read again")
	}
	next, err := Load(a.cfg.File)
	if err != nil {
		return nil, err
	}
	next.Options = a.cfg.Options
	if next.Name == "" {
		next.Name = a.cfg.Name
	}
	if next.State == "" {
		next.State = filepath.Join(stateDir, "agent-"+next.Name+".term")
	}
	if err := a.cfg.fixed(next); err != nil {
		return nil, fmt.Errorf("%s: %w", a.cfg.File, err)
	}
	return a.become(next)
}

// fixed returns an error for a change that a running agent cannot make.
func (c *Config) fixed(next *Config) error {
	same := func(key string, was, is any) error {
		if was, is := fmt.Sprint(was), fmt.Sprint(is); was != is {
			return fmt.Errorf("%s: %s became %s, but a running agent cannot change it: restart it with --take-over", key, was, is)
		}
		return nil
	}
	errs := []error{
		same("name", c.Name, next.Name), same("state", c.State, next.State), same("bus.urls", c.Bus.URLs, next.Bus.URLs),
		same("bus.keys", c.Bus.Keys, next.Bus.Keys), same("bus.buckets", c.Bus.Buckets, next.Bus.Buckets),
		same("role host", c.Host != nil, next.Host != nil), same("role switch", c.Switch != nil, next.Switch != nil),
	}
	if h, n := c.Host, next.Host; h != nil && n != nil {
		errs = append(errs, same("host.number", h.Number, n.Number), same("host.uplink.port", h.Uplink, n.Uplink),
			same("host.uplink.rate", h.Rate, n.Rate), same("host.pause_zero", h.PauseZero, n.PauseZero), same("host.messages", h.Frames, n.Frames))
		if !reflect.DeepEqual(h.Deadlines, n.Deadlines) {
			errs = append(errs, errors.New("host.deadlines: a running agent cannot change it: restart it with --take-over"))
		}
		if !sameLaws(h.Laws, n.Laws) {
			errs = append(errs, errors.New("host.laws: a running agent cannot change it: restart it with --take-over"))
		}
	}
	if s, n := c.Switch, next.Switch; s != nil && n != nil {
		errs = append(errs, same("switch.number", s.Number, n.Number), same("switch.file", s.File, n.File), same("switch.laws", s.ByPolicy, n.ByPolicy))
	}
	return errors.Join(errs...)
}

// become applies the configuration next. On error everything is as before.
func (a *agent) become(next *Config) (changes []string, err error) {
	was := a.cfg
	var undo []func()
	defer func() {
		for i := len(undo) - 1; err != nil && i >= 0; i-- {
			undo[i]()
		}
	}()
	if was.Metrics != next.Metrics {
		if err := a.metrics.Listen(next.Metrics, false); err != nil {
			return nil, err
		}
		changes = append(changes, fmt.Sprintf("metrics: %q became %q", was.Metrics, next.Metrics))
		undo = append(undo, func() { a.warn(a.metrics.Listen(was.Metrics, true)) })
	}
	devices, err := a.devicesOf(was, next)
	if err != nil {
		return nil, err
	}
	if a.host != nil {
		more, err := a.host.become(next.Host, devices)
		if err != nil {
			return nil, err
		}
		changes = append(changes, more...)
		undo = append(undo, func() { _, err := a.host.become(was.Host, devices); a.warn(err) })
	}
	if a.ports != nil {
		more, err := a.ports.become(next.Switch, devices)
		if err != nil {
			return nil, err
		}
		changes = append(changes, more...)
		undo = append(undo, func() { _, err := a.ports.become(was.Switch, devices); a.warn(err) })
	}
	more, err := a.reloadLaws()
	if err != nil {
		return nil, err
	}
	a.cfg, a.names = next, next.deviceNames()
	if a.planned != nil {
		a.planned.setPorts(next.Switch.Ports)
	}
	return append(changes, more...), nil
}

// devicesOf lists the devices that either configuration names.
func (a *agent) devicesOf(was, next *Config) (map[string]switchd.Device, error) {
	names := map[string]bool{}
	for _, c := range []*Config{was, next} {
		maps.Copy(names, c.deviceNames())
	}
	return switchd.Devices(func(name string) bool { return names[name] }, a.ports != nil)
}

func (c *Config) deviceNames() map[string]bool {
	names := map[string]bool{}
	if c.Host != nil {
		names[c.Host.Uplink] = true
		for i := range c.Host.VMs {
			names[c.Host.VMs[i].Port] = true
		}
	}
	if c.Switch != nil {
		for i := range c.Switch.Ports {
			names[c.Switch.Ports[i].Name] = true
		}
	}
	return names
}

// reloadLaws has the laws of the switch read their file again.
func (a *agent) reloadLaws() ([]string, error) {
	if a.laws == nil || a.planned != nil {
		return nil, nil
	}
	return a.laws.reload()
}

func (a *agent) warn(err error) {
	if err != nil {
		a.log.Warn("after the refused reload", "error", err)
	}
}
