package switchd

import "strings"

// formerNames are metrics of ports that were renamed. The former name is served for one release (docs/names.md).
var formerNames = map[string]string{
	"enforced_ratio":           "held_ratio",
	"advertised_packets_total": "told_packets_total",
}

// formerGroups are the former values of the label group.
var formerGroups = map[string]string{"control": "free", "treatment": "held"}

// formerPortMetrics returns the renamed metrics under their former names, with the same values.
func formerPortMetrics(all []metric[*portMoment]) (out []metric[*portMoment]) {
	for _, m := range all {
		former, group := formerNames[m.name], strings.HasPrefix(m.name, "group_")
		help := "Former name of weir_switch_port_" + m.name + ", for one release."
		switch {
		case former != "":
			out = append(out, someOfPort(m.kind, former, help, "", m.of))
		case group:
			out = append(out, someOfPort(m.kind, "arm_"+strings.TrimPrefix(m.name, "group_"), help, "arm", formerLabels(m.of)))
		}
	}
	return out
}

// formerLabels calls of with the former values of the label.
func formerLabels(of func(*portMoment, func(float64, ...string))) func(*portMoment, func(float64, ...string)) {
	return func(p *portMoment, emit func(float64, ...string)) {
		of(p, func(v float64, labels ...string) { emit(v, formerGroups[labels[0]]) })
	}
}
