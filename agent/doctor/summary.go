package doctor

import (
	"slices"
)

// summary returns what Weir can do here, from the findings.
func (j *judge) summary() []Can {
	out := []Can{}
	for _, a := range []Ability{Switching, Observing, Marking, Edging, Lab} {
		out = append(out, j.can(a))
	}
	return out
}

// can answers for one ability: what bars it on the machine comes first, then what is not known, then ports.
func (j *judge) can(a Ability) Can {
	var bars, asks, hides []string
	barred, asked := map[string]bool{}, map[string]bool{} // ports
	for i := range j.found {
		n := &j.found[i]
		switch {
		case slices.Contains(n.bars, a) && n.port != "":
			barred[n.port] = true
		case slices.Contains(n.asks, a) && n.port != "":
			asked[n.port] = true
		case slices.Contains(n.bars, a):
			bars = append(bars, n.what())
		case slices.Contains(n.asks, a):
			asks = append(asks, n.what())
		case slices.Contains(n.hides, a):
			hides = append(hides, n.what())
		}
	}
	switch {
	case len(bars) > 0:
		return Can{a, No, "see " + some(bars)}
	case a == Lab && len(hides) > 0:
		return Can{a, Unknown, "see " + some(hides)}
	case a == Lab:
		return Can{a, Yes, "experiments in network namespaces: weir run FILE --world lab"}
	}
	var ready, change, off []string
	for _, d := range j.ports {
		switch {
		case barred[d.Name]:
			off = append(off, d.Name)
		case asked[d.Name]:
			change = append(change, d.Name)
		default:
			ready = append(ready, d.Name)
		}
	}
	why := joined(portsText("on ", ready), portsText("after a change (see ports) on ", change), portsText("not on ", off))
	switch {
	case len(hides) > 0:
		return Can{a, Unknown, joined("see "+some(hides), why)}
	case len(ready)+len(change) == 0:
		return Can{a, No, joined("no port for it here", portsText("not on ", off))}
	case len(asks) > 0:
		return Can{a, Changes, joined("first see "+some(asks), why)}
	case len(change) > 0:
		return Can{a, Changes, why}
	case a == Edging:
		return Can{a, Yes, why + "; experiments use it (weir run), no command attaches it by itself yet"}
	case a == Switching && len(ready) == 1:
		return Can{a, Yes, why + "; flows are limited only if their acknowledgements leave by a port of the switch too"}
	}
	return Can{a, Yes, why}
}

func portsText(what string, ports []string) string {
	if len(ports) == 0 {
		return ""
	}
	for i, p := range ports {
		ports[i] = clean(p)
	}
	return what + some(ports)
}

// briefs are findings of the machine in a word.
var briefs = map[string]string{
	"kernel.feature": "features of the kernel", "kernel.verifier": "the verifier", "kernel.bpffs": "BPF file system", "kernel.timers": "timers",
	"kernel.jit": "BPF compiler", "rights.capabilities": "capabilities", "rights.root": "root", "memory.tables": "memory", "port.none": "ports",
}

// what names a finding in the summary.
func (n *Finding) what() string {
	switch brief, known := briefs[n.Check]; {
	case n.Subject != "":
		return n.Subject
	case known:
		return brief
	}
	return n.Check
}
