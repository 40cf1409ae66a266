package telemetry

import "github.com/cilium/ebpf"

// Program returns the program of a port.
func (t *Telemetry) Program(port int) *ebpf.Program { return t.ports[port].program }
