package fairq

import "weir/datapath/attach"

// Names of the switch program in the kernel: one that may limit flows, and one that only observes.
const (
	switchProgram  = "weir_fairq"
	observeProgram = "weir_observe"
)

// Taken is the error for a port where FairQ of another switch is attached.
type Taken = attach.Taken

// sole describes the programs that cannot be at a port together with FairQ's.
func sole() *attach.Sole {
	return &attach.Sole{
		Laws:   map[string]string{switchProgram: "FairQ", "weir_repair": "loss repair"},
		Tables: map[string]string{fairqMapControls: "FairQ", "repair_controls": "loss repair"},
		Alive:  sendsHeartbeats,
	}
}

// CheckTaken returns *Taken for the first of the ports where FairQ runs that is not pinned in dir.
func CheckTaken(dir string, ports ...attach.PortRef) error { return sole().CheckTaken(dir, ports...) }

// sendsHeartbeats reports whether a process sends heartbeats to what is pinned in dir.
func sendsHeartbeats(dir string) bool {
	v, err := Open(dir)
	if err != nil {
		return false
	}
	defer func() { _ = v.Close() }()
	var c fairqControl
	if err := v.maps.Controls.Lookup(uint32(0), &c); err != nil {
		return false
	}
	return c.Releasing == 0 && attach.Age(c.HeartbeatNs).Nanoseconds() < int64(c.LeaseNs)
}
