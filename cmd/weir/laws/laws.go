// Package laws lists the control laws of this build. It is the only place that names them all. It passes every other
// room what that needs.
package laws

import (
	"sync"

	"weir/agent/switchd"
	switchfairq "weir/agent/switchd/fairq"
	"weir/agent/switchd/lossrepair"
	"weir/experiment"
	"weir/lab"
	"weir/law"
	"weir/law/acdc"
	"weir/law/droptail"
	"weir/law/fairq"
	"weir/law/fairqctl"
	"weir/law/gcc"
	"weir/law/hygenicc"
	"weir/law/mark"
	"weir/law/sed"
	"weir/law/sicc"
	"weir/law/siccns2"
	"weir/law/static"
	simlaws "weir/sim/laws"
)

// entry is a law with its part for each world; nil: the world does not have it.
type entry struct {
	spec law.Spec
	sim  func() simlaws.Law
	lab  func() lab.Law
}

// list has every law, in the order of the documentation.
func list() []entry {
	return []entry{
		{droptail.Spec(), simlaws.DropTail, lab.DropTail},
		{droptail.DeepSpec(), simlaws.DeepTail, lab.DeepTail},
		{mark.REDSpec(), simlaws.Mark, lab.Mark},
		{mark.ECNSpec(), simlaws.Mark, lab.Mark},
		{static.Spec(), simlaws.Static, nil},
		{acdc.Spec(), simlaws.ACDC, nil},
		{fairq.Spec(), simlaws.FairQ, lab.FairQ},
		controlled(fairqctl.Spec()),
		controlled(sicc.Spec()),
		{siccns2.Spec(), simlaws.SICCNS2, nil},
		controlled(gcc.Spec()),
		{hygenicc.Spec(), simlaws.HyGenICC, func() lab.Law { return lab.Controlled(hygenicc.Spec()) }},
		{sed.Spec(), simlaws.SED, lab.SED},
		{sed.RepairSpec(), simlaws.RSED, lab.RSED},
		{sed.LossRepairSpec(), simlaws.LossRepair, lab.LossRepair},
	}
}

// controlled is a law that runs at a controller, in both worlds.
func controlled(s law.Spec) entry {
	return entry{s, func() simlaws.Law { return simlaws.Controlled(s) }, func() lab.Law { return lab.Controlled(s) }}
}

// announced are laws that files may name and that no world has.
var announced []law.Spec

// Announce adds a law that files may name and that no world has. Tests call it, before anything else.
func Announce(s law.Spec) { announced = append(announced, s) }

// All returns the laws of this build by the names of experiment files.
func All() *experiment.Laws {
	var out []experiment.Law
	for _, e := range list() {
		l := experiment.Law{Spec: e.spec}
		if e.lab != nil {
			l.Built = append(l.Built, law.WorldLab)
		}
		if e.sim != nil {
			l.Built = append(l.Built, law.WorldSim)
		}
		out = append(out, l)
	}
	for _, s := range announced {
		out = append(out, experiment.Law{Spec: s})
	}
	return experiment.NewLaws(out...)
}

// Sim returns the laws of the simulator.
func Sim() simlaws.Laws {
	out := simlaws.Laws{}
	for _, e := range list() {
		if e.sim != nil {
			l := e.sim()
			l.Report = e.spec.Report
			out[e.spec.Name] = l
		}
	}
	return out
}

// Lab returns the laws of the lab.
func Lab() lab.Laws {
	out := lab.Laws{}
	for _, e := range list() {
		if e.lab != nil {
			l := e.lab()
			l.Report = e.spec.Report
			out[e.spec.Name] = l
		}
	}
	return out
}

// Switch returns `weir switch` with the laws for production switches.
var Switch = sync.OnceValue(func() *switchd.Agent { return switchd.New(switchfairq.Law{}, lossrepair.Law{}) })

// Built reports whether any world has the law.
func Built(name string) bool {
	_, inSim := Sim()[name]
	_, inLab := Lab()[name]
	return inSim || inLab
}
