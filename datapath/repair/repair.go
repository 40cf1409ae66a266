// Package repair repairs losses at the ports of a switch. The program bpf/repair/repair.bpf.c keeps TCP segments that a full queue
// would lose in a parking (package park), which puts them back in order at the port's rate. core/repair.h decides.
package repair

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"weir/datapath/attach"
	"weir/datapath/park"
)

const (
	// Late is how much longer than its full queue a port may need for a repair, until the counters say that it was late (SPEC 1.11).
	Late = 2 * time.Millisecond
	// LongestWait bounds how long a packet is kept: half of the time after which core/repair.h takes it as lost.
	LongestWait = 50 * time.Millisecond
	spareWait   = time.Millisecond // a reserve within Late, because processors are slow

	device       = "weir-repair"
	frameBytes   = 1514
	headFrames   = 4 // of packets that enter a queue on several processors at once
	parkBurst    = 200 * time.Microsecond
	parkLeast    = 1600
	packetMost   = 64 << 10 // a GSO packet
	parkMost     = 64 << 20
	limitPackets = 1 << 15
)

// Port is a port with its queue.
type Port struct {
	attach.PortRef
	Bps   uint64 // the port's rate in bit/s
	Queue uint32 // bytes that its queue holds
	Park  uint32 // the most that is kept, in bytes; see Kept
}

// limit returns how much of the queue packets may fill that did not wait. The rest is for those that come back: the parking's burst,
// and frames that enter at the same time.
func (p *Port) limit() uint32 {
	head := max(uint32(p.sends(parkBurst)), parkLeast) + headFrames*frameBytes
	if head > p.Queue {
		return 0
	}
	return p.Queue - head
}

// Kept returns the most that is kept, in bytes. It is Park, or less: what the port sends in LongestWait, and in the time of a full queue
// and 1 ms. So a packet that is kept is back in time.
func (p *Port) Kept() uint32 {
	return uint32(min(float64(p.Park), p.sends(LongestWait), float64(p.Queue)+p.sends(Late-spareWait)))
}

// sends returns how many bytes the port sends in a time.
func (p *Port) sends(in time.Duration) float64 { return float64(p.Bps) / 8 * in.Seconds() }

// Repair is the program attached to the ports of one switch.
type Repair struct {
	park  *park.Park
	ports []*port
}

type port struct {
	Port
	objects kernelObjects
	link    link.Link // kept here: the garbage collector would close it, which detaches the program
}

// Attach puts the program at the head of each port's egress chain. All ports are in one network namespace, where it makes a parking
// that belongs to owner. If the process ends, the programs are detached, and the parking sends the packets that wait. Errors name the
// port; they can be *attach.NoQueue, *park.Foreign, *attach.MissingFeature or attach.ErrPermission. After an error nothing stays attached.
func Attach(ports []Port, owner string) (*Repair, error) {
	if err := Check(); err != nil {
		return nil, fmt.Errorf("repair: %w", err)
	}
	if len(ports) == 0 {
		return &Repair{}, nil
	}
	if len(ports) > park.Ports {
		return nil, fmt.Errorf("repair: %d ports: at most %d", len(ports), park.Ports)
	}
	all := uint64(0)
	for i := range ports {
		all += uint64(ports[i].Park) + packetMost
	}
	o := park.Options{Name: device, Owner: owner, LimitBytes: uint32(min(all, parkMost)), LimitPackets: limitPackets, Burst: parkBurst}
	opened, err := park.Open(ports[0].Enter, o)
	if err != nil {
		return nil, fmt.Errorf("repair: %w", err)
	}
	r := &Repair{park: opened}
	for i := range ports {
		if err := r.attach(uint32(i), ports[i]); err != nil {
			return nil, errors.Join(fmt.Errorf("repair: port %s: %w", ports[i].Name, err), r.Close())
		}
	}
	return r, nil
}

func (r *Repair) attach(id uint32, of Port) error {
	if _, err := of.QueueWithBacklog(); err != nil {
		return err
	}
	if of.limit() < 2*frameBytes {
		return fmt.Errorf("a queue of %d bytes is too short at %d bit/s: packets that come back need %d, and others two frames", of.Queue, of.Bps, of.Queue-of.limit())
	}
	if err := r.park.SetPort(id, of.Ifindex, of.Bps); err != nil {
		return err
	}
	spec, err := loadKernel()
	if err != nil {
		return fmt.Errorf("read the embedded program: %w", err)
	}
	errs := []error{attach.SetRandomDigestKey(spec)}
	due := time.Duration(float64(of.Queue)*8e9/float64(of.Bps)) + Late
	for name, value := range map[string]any{
		kernelVarLimitBytes: of.limit(), kernelVarParkBytes: of.Kept(), kernelVarPortId: id,
		kernelVarNsPerKib: uint32(1024 * 8e9 / float64(of.Bps)), kernelVarDueNs: uint64(due),
	} {
		errs = append(errs, spec.Variables[name].Set(value))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	p := &port{Port: of}
	if err := spec.LoadAndAssign(&p.objects, &ebpf.CollectionOptions{Cache: attach.KernelTypes(), MapReplacements: r.park.Maps()}); err != nil {
		return fmt.Errorf("load program weir_repair: %w", err)
	}
	r.ports = append(r.ports, p)
	p.link, err = attach.Program(of.PortRef, p.objects.WeirRepair, ebpf.AttachTCXEgress, link.Head())
	return err
}

// Close detaches the program from every port, sends the packets that wait, and removes the parking. It ignores ports whose device is gone.
func (r *Repair) Close() error {
	var errs []error
	for _, p := range r.ports {
		if p.link != nil {
			errs = append(errs, attach.DetachLink(p.link), p.link.Close())
		}
	}
	if r.park != nil {
		errs = append(errs, r.park.Close())
	}
	for _, p := range r.ports {
		errs = append(errs, p.objects.Close())
	}
	r.ports = nil
	return errors.Join(errs...)
}

// Stats counts the packets of a port. A GSO packet counts its segments.
type Stats struct {
	Port    string
	Seen    uint64
	Over    uint64 // parked: the queue had no room for them
	Behind  uint64 // parked: the queue had room, and packets of their flow waited
	Full    uint64 // dropped: the parking had no room for them
	Other   uint64 // dropped: over the limit, and not TCP
	Refused uint64 // should have been parked and passed: the parking is gone, or their mark or priority is in use

	Back       uint64        // put back into the queue
	Repaired   uint64        // of those: the queue had no room for them at first
	InTime     uint64        // of the repaired: after the time of a full queue and Late at most
	SentInTime uint64        // of the repaired: they also reached the head of the queue in that time
	Waited     time.Duration // of the repaired, the sum
	Longest    time.Duration // of the repaired
}

// Stats reads the counters of every port, in the order of the ports given to Attach.
func (r *Repair) Stats() ([]Stats, error) {
	stats := make([]Stats, len(r.ports))
	for i, p := range r.ports {
		var cpus []kernelRepairCounts
		if err := p.objects.RepairStats.Lookup(uint32(0), &cpus); err != nil {
			return nil, fmt.Errorf("repair: counters of %s: %w", p.Name, err)
		}
		s := Stats{Port: p.Name}
		for _, c := range cpus {
			s.Seen += c.Seen
			s.Over += c.Over
			s.Behind += c.Behind
			s.Full += c.Full
			s.Other += c.Other
			s.Refused += c.Refused
			s.Back += c.Back
			s.Repaired += c.Repaired
			s.InTime += c.InTime
			s.SentInTime += c.SentInTime
			s.Waited += time.Duration(c.WaitedNs)
			s.Longest = max(s.Longest, time.Duration(c.LongestNs))
		}
		stats[i] = s
	}
	return stats, nil
}

// Parking reads the counters of the parking.
func (r *Repair) Parking() (park.Stats, error) { return r.park.Stats() }

// Check checks that Attach can work on this kernel and for this user. Errors: attach.ErrPermission or *attach.MissingFeature.
func Check() error { return attach.CheckAll(attach.QueueProbes()) }
