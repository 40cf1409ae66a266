package attach

// Use is a part of Weir that asks something of the kernel.
type Use string

// What Weir may be wanted for.
const (
	UseSwitch  Use = "switch"  // windows of flows at ports
	UseMark    Use = "marking" // ECN marks at ports
	UseEdge    Use = "edge"    // at a host's uplink
	UseMeasure Use = "lab"     // measurement and guests of the lab
)

// Feature is one thing that Weir's programs ask of the kernel.
type Feature struct {
	Name  string
	Since string // "6.6"; or the kernel option that turns it on: "CONFIG_DEBUG_INFO_BTF"
	Uses  []Use
	// Err is nil where the kernel has it, a *MissingFeature where it has not, ErrPermission where only
	// root may ask, and another error where it could not be found out.
	Err error
}

// Needs is what brings the feature, in words.
func (f *Feature) Needs() string { return (&MissingFeature{f.Name, f.Since}).needs() }

// Needs are the probes of what one part of Weir asks.
type Needs struct {
	Use    Use
	Probes []Probe
}

// MeasureNeeds are those of the lab.
func MeasureNeeds() Needs {
	return Needs{UseMeasure, append(MeasureProbes(), SocketProbes()[1:]...)}
}

// Features asks this kernel for everything that these parts of Weir need. Nothing is attached and nothing stays.
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
