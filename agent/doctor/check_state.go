package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/law"
)

func (j *judge) memory() {
	m := &j.f.Memory
	if m.Tables == 0 {
		return
	}
	left, where := m.Available, "available"
	if m.CgroupLimit > 0 && (left == 0 || m.CgroupLeft < left) {
		left, where = m.CgroupLeft, "left to this control group"
	}
	n := Finding{Area: AreaMemory, Check: "memory.tables", Level: OK}
	n.Text = fmt.Sprintf("the tables of a switch (%d connections) take about %s of kernel memory", m.Flows, size(m.Tables))
	if left > 0 {
		n.Text += fmt.Sprintf("; %s %s", size(left), where)
		if m.Tables > left/2 {
			n.Level, n.asks = Problem, []Ability{Switching, Observing}
			n.Remedy = "raise the limit (systemd: MemoryMax=, Kubernetes: limits.memory), or free memory"
		}
	}
	j.add(n)
	if !m.LockedUnlimited && m.LockedLimit > 0 {
		j.add(Finding{
			Area: AreaMemory, Check: "memory.locked", Level: OK,
			Text: "locked memory is limited to " + size(m.LockedLimit) + ": tables do not count towards it (they are the control group's)",
		})
	}
}

// size writes bytes as the configuration does, rounded where they are not round.
func size[T ~int | ~int64 | ~uint64](n T) string {
	switch {
	case n < 10_000 || n%1000 == 0 && n < 10e9:
		return law.Bytes(n).String()
	case n < 1e6:
		return fmt.Sprintf("%.1fKB", float64(n)/1e3)
	case n < 10e9:
		return fmt.Sprintf("%.1fMB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.0fGB", float64(n)/1e9)
}

// state judges what is there of Weir.
func (j *judge) state() {
	for i := range j.f.Switches {
		j.pinned(&j.f.Switches[i])
	}
	for i := range j.f.Devices {
		d := &j.f.Devices[i]
		if slices.ContainsFunc(d.Egress, func(p Program) bool { return p.Ours }) && !j.owned(d.Name) {
			j.add(Finding{
				Area: AreaState, Check: "weir.unpinned", Subject: d.Name, Level: Note, port: d.Name,
				Text:   "a program of Weir's is attached that no switch pinned here has: a lab's, or one of another mount namespace",
				Remedy: "end the process that has it: bpftool link shows which",
			})
		}
	}
	j.parkings()
	if len(j.f.Switches) == 0 && !j.hidden(seeSwitches) {
		j.add(Finding{Area: AreaState, Check: "weir.switch", Level: OK, Text: "no switch is pinned: no part of Weir is running"})
	}
}

// parkingAlias begins the alias of a parking device that a switch made; the switch's name follows (datapath/park).
const parkingAlias = "weir park weir switch "

// parkings reports parkings that no running switch has. One end of each pair is enough.
func (j *judge) parkings() {
	for i := range j.f.Devices {
		d := &j.f.Devices[i]
		if !d.Parking || !strings.HasSuffix(d.Name, "0") || j.hidden(seeSwitches) {
			continue
		}
		n := Finding{Area: AreaState, Check: "weir.parking", Subject: d.Name, Level: OK}
		name, of := strings.CutPrefix(d.Alias, parkingAlias)
		switch {
		case !of:
			n.Level, n.Text = Note, fmt.Sprintf("a parking of Weir that is no switch's: its alias is %q", d.Alias)
			n.Remedy = "if no lab runs: ip link del " + shell(d.Name)
		case slices.ContainsFunc(j.f.Switches, func(s Switch) bool { return s.Name == name && s.Alive }):
			n.Text = "the parking of switch " + name + ": packets wait there"
		default:
			n.Level, n.Text = Note, "the parking of switch "+name+", which is not running: packets that waited there have left"
			n.Remedy = "start weir switch --name " + shell(name) + " again; or remove it: weir switch --purge --name " + shell(name)
		}
		j.add(n)
	}
}

func (j *judge) owned(device string) bool {
	return slices.ContainsFunc(j.f.Switches, func(s Switch) bool {
		return slices.ContainsFunc(s.Ports, func(p SwitchPort) bool { return p.Local && p.Name == device })
	})
}

// alive reports whether a running switch has a port.
func (j *judge) alive(device string) bool {
	return slices.ContainsFunc(j.f.Switches, func(s Switch) bool {
		return s.Alive && slices.ContainsFunc(s.Ports, func(p SwitchPort) bool { return p.Local && p.Name == device })
	})
}

func (j *judge) pinned(s *Switch) {
	n := Finding{Area: AreaState, Check: "weir.switch", Subject: s.Name, Level: OK}
	var ports []string
	for _, p := range s.Ports {
		ports = append(ports, p.Name)
		if p.Gone {
			j.add(Finding{
				Area: AreaState, Check: "weir.port_gone", Subject: p.Name, Level: Note, Text: "a port of switch " + s.Name + " whose device is gone",
				Remedy: "nothing: it is attached again when it comes back, and removed when weir switch starts without it",
			})
		}
	}
	purge := "weir switch --purge --name " + shell(s.Name)
	switch {
	case s.Other:
		n.Level, n.Text = Problem, "its pinned tables are another version's: "+s.Refused
		n.Remedy = "start weir switch --name " + shell(s.Name) + " with --renew (flows are adopted), or remove them: " + purge
	case s.Refused != "":
		n.Level, n.Text = Problem, "its pinned tables cannot be read: "+s.Refused
		n.Remedy = purge
	case s.Alive:
		n.Text = fmt.Sprintf("running on %s: %s", some(ports), s.Holder)
	case len(s.Ports) > 0:
		n.Level = Problem
		n.Text = fmt.Sprintf("stale: attached to %s, but the last heartbeat of %s was %v ago: windows are released", some(ports), s.Holder, s.Age.Round(time.Second))
		n.Remedy = "start weir switch --name " + shell(s.Name) + " again, which takes it over; or remove it: " + purge
	default:
		n.Level, n.Text = Note, "stopped: only its tables are pinned, for the next start"
		n.Remedy = "nothing; or remove them: " + purge
	}
	j.add(n)
}

// hiddenBy is what cannot be said without a part of the facts.
var hiddenBy = map[string][]Ability{
	seeProcess: everything, seeKernel: everything, seeBPF: everything, seeDevices: attaching,
}

// unseen reports what could not be read.
func (j *judge) unseen() {
	if n := j.f.DevicesLeft; n > 0 {
		j.add(Finding{
			Area: AreaUnseen, Check: "unseen.devices", Level: Note, Text: fmt.Sprintf("%d more devices: only the first %d are looked at", n, len(j.f.Devices)),
			Remedy: "name the ports: weir doctor PORT...",
		})
	}
	for _, u := range j.f.Unseen {
		n := Finding{Area: AreaUnseen, Check: "unseen", Subject: u.What, Level: Note, Text: u.Why, hides: hiddenBy[u.What]}
		if u.Root && !j.f.Process.Root {
			n.Remedy = "run weir doctor as root"
		}
		j.add(n)
	}
}
