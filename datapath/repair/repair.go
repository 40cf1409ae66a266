// Package repair repairs losses at the ports of a switch. The program bpf/repair/repair.bpf.c keeps TCP segments that a full queue
// would lose in a parking (package park), which puts them back in order at the port's rate. core/repair.h decides.
//
//	run.go     the life of the programs of a switch: own, attach, change, remove, end
//	tables.go  the tables of a switch, and the programs that use them
//	open.go    what another process reads of a switch, and removes
package repair

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf/btf"

	"weir/datapath/attach"
	"weir/datapath/park"
)

const (
	device       = "weir-repair"
	otherDevice  = "weir-rp-" // of a switch that is not the default
	parkMost     = 64 << 20   // bytes that wait at all ports of a switch
	limitPackets = 1 << 15
	longestWait  = 50 * time.Millisecond // of a packet: it bounds Law.ParkBytes
)

// Law is the configuration of a port: plain values, which == compares.
type Law struct {
	Bps        uint64        // the port's rate in bit/s
	LimitBytes uint32        // of the queue, that packets may fill that did not wait
	ParkBytes  uint32        // the most that is kept: no more than the port sends in 50 ms
	Due        time.Duration // a repair that takes longer is late
	Burst      time.Duration // how much comes back at once, in time at the rate: the queue has room for it above LimitBytes; 0: 1 ms
	Off        bool          // packets pass
}

// Port is a port with its queue.
type Port struct {
	attach.PortRef
	Law
}

func (l *Law) check() error {
	if most := float64(l.Bps) / 8 * longestWait.Seconds(); l.LimitBytes == 0 || float64(l.ParkBytes) > most {
		return fmt.Errorf("%d bytes of the queue, %d bytes that are kept: above 0 and up to %.0f, what %d bit/s sends in %v", l.LimitBytes, l.ParkBytes, most, l.Bps, longestWait)
	}
	return nil
}

// Config is what the ports of one switch have in common.
type Config struct {
	// Pin is a directory in a BPF file system. With it programs and tables outlive the process, and a later Own with the same directory
	// takes them over without detaching. It belongs to one process at a time. Empty: everything ends with the process.
	Pin string
	// TakeOver asks a running process that has Pin to leave it to this one. Without it: *attach.Busy.
	TakeOver bool
	// Renew replaces pinned tables of another layout. Without it: *attach.OtherSchema.
	Renew bool
	// Version of the process, for status.
	Version string
	// Lease is how long packets are parked after the last Heartbeat. 0: 1 s.
	Lease time.Duration
}

// parking returns the options of the parking of the switch that is pinned in dir.
func parking(dir string) park.Options {
	return park.Options{Name: device, LimitBytes: parkMost, LimitPackets: limitPackets}.OfSwitch(dir, otherDevice)
}

// sole describes the programs that cannot be at a port together with this one.
func sole() *attach.Sole {
	return &attach.Sole{
		Laws:   map[string]string{programName: "loss repair", otherProgram: otherName},
		Tables: map[string]string{kernelMapRepairControls: "loss repair", otherTable: otherName},
		Alive:  sendsHeartbeats,
	}
}

// CheckTaken returns *attach.Taken for the first of the ports where such a program runs that is not pinned in dir.
func CheckTaken(dir string, ports ...attach.PortRef) error { return sole().CheckTaken(dir, ports...) }

// Check checks that Own can work on this kernel and for this user. Errors: attach.ErrPermission or *attach.MissingFeature.
func Check() error { return attach.CheckAll(Needs().Probes) }

// Needs returns the probes of the program.
func Needs() attach.Needs {
	return attach.Needs{Use: attach.UseSwitch, Probes: append(attach.QueueProbes(),
		attach.Probe{Feature: "kfunc bpf_rdonly_cast", Since: "6.2", Ask: attach.KernelHas[*btf.Func]("bpf_rdonly_cast")},
	)}
}
