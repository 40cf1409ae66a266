package attach

// Use is a part of Weir that needs features of the kernel.
type Use string

// The parts of Weir.
const (
	UseSwitch  Use = "switch"  // windows of flows at ports
	UseMark    Use = "marking" // ECN marks at ports
	UseEdge    Use = "edge"    // at a host's uplink
	UseMeasure Use = "lab"     // measurement and guests of the lab
)

// Feature is one feature of the kernel that Weir's programs need.
type Feature struct {
	Name  string
	Since string // "6.6"; or the kernel option that enables it: "CONFIG_DEBUG_INFO_BTF"
	Uses  []Use
	// Err is nil if the kernel has the feature, *MissingFeature if it lacks it, ErrPermission if only root may
	// ask, and another error if the probe failed.
	Err error
}

// Needs returns the version of Linux or the kernel option that brings the feature, for people.
func (f *Feature) Needs() string { return (&MissingFeature{f.Name, f.Since}).needs() }

// Needs are the probes of one part of Weir.
type Needs struct {
	Use    Use
	Probes []Probe
}

// MeasureNeeds returns the probes of the lab.
func MeasureNeeds() Needs {
	return Needs{UseMeasure, append(MeasureProbes(), SocketProbes()[1:]...)}
}

// Features probes this kernel for all that these parts of Weir need. It attaches nothing and leaves nothing
// behind.
func Features(parts ...Needs) []Feature {
	var out []Feature
	index := map[string]int{}
	add := func(use Use, probes []Probe) {
		for _, p := range probes {
			i, known := index[p.Feature]
			if !known {
				err := p.Check()
				if IsPermission(err) {
					err = ErrPermission
				}
				i = len(out)
				index[p.Feature] = i
				out = append(out, Feature{Name: p.Feature, Since: p.Since, Err: err})
			}
			out[i].Uses = append(out[i].Uses, use)
		}
	}
	for _, p := range parts {
		add(p.Use, p.Probes)
	}
	return out
}
