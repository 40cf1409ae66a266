package law

// The worlds that a law may be meant for.
const (
	WorldLab = "lab"
	WorldSim = "sim"
)

// BothWorlds are the lab and the simulator.
func BothWorlds() []string { return []string{WorldLab, WorldSim} }
