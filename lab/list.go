package lab

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"
)

// Info describes a lab on this machine.
type Info struct {
	Name       string
	Experiment string
	Nodes      []string          // all, by name: those of the experiment, and LabNodes
	LabNodes   []string          // of Nodes: those that every lab adds
	Addresses  map[string]string // guest -> its address for the first profile of guests' settings
	Created    time.Time
	Owned      bool // ends with its process
	Pid        int  // the process that built it
	Alive      bool // that process still has its lock
	Built      bool // false: it is being built, or its process was killed while building
	// Memory is the growth of the kernel's own memory while the lab was built, in bytes; 0: not known. Other
	// programs affect it.
	Memory int64
}

// List returns the labs of this machine, by name.
func List() ([]Info, error) {
	names, _, err := labNames()
	if errors.Is(err, fs.ErrPermission) {
		return nil, errors.New("listing labs needs root: run it with sudo")
	}
	if err != nil {
		return nil, err
	}
	var list []Info
	for _, name := range names {
		r, err := readRecord(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // just removed
		}
		if err != nil {
			return list, err
		}
		list = append(list, Info{
			Name: r.Name, Experiment: r.Experiment, Nodes: r.nodes(), LabNodes: []string{controllerNode, mgmtNode}, Addresses: r.Addresses, Created: r.Created, Owned: r.Owned,
			Pid: r.Pid, Alive: ownerAlive(name), Built: r.Built, Memory: r.MemoryKB << 10,
		})
	}
	return list, nil
}

func (r *record) nodes() []string { return slices.Sorted(maps.Keys(r.Namespaces)) }
