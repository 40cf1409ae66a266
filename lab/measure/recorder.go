// Package measure records what happens at the queues of a lab's ports, with a kernel program of its
// own that is the same under every scheme (bpf/measure.bpf.c): backlog, bytes and marks on a fixed
// grid of time, and every drop. It changes no packet and asks no law.
package measure

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
)

// Step is the grid of samples.
const Step = 500 * time.Microsecond

// Port is a port to be measured.
type Port struct {
	Name        string
	NetnsCookie uint64 // of the namespace it is in: attach.NetnsCookie
	Ifindex     int    // within it
	RateBps     int64
	BufferBytes int64
	Labels      []string
	Sample      bool // record its queue; drops are recorded at every port
	// Enter runs f on a thread inside the port's namespace; nil: the caller is inside.
	Enter func(f func() error) error
}

func (p *Port) ref() attach.PortRef {
	return attach.PortRef{Name: p.Name, Ifindex: p.Ifindex, Enter: p.Enter}
}

func (p *Port) key() measurePortKey {
	return measurePortKey{NetnsCookie: p.NetnsCookie, Ifindex: uint32(p.Ifindex)}
}

// Recorder is a measurement that runs, or has run.
type Recorder struct {
	ports   []Port
	objects measureObjects
	links   []link.Link
	reader  *ringbuf.Reader

	stop    chan struct{}
	stopped sync.WaitGroup
	readErr error

	records
	final  []measurePort
	others []OtherDrops
	costs  []Cost
}

// OtherDrops counts packets that were dropped at a port's device for reasons that are neither a full
// queue nor a law: on their way in, or by a driver.
type OtherDrops struct {
	Port    string
	Reason  string // the kernel's name, without SKB_DROP_REASON_
	Packets uint64 // a GSO packet counts once
}

// maxPorts is the size of the map of ports in bpf/measure.bpf.c.
const maxPorts = 4096

// Start attaches the measuring program. Laws are attached before: the program has to see packets
// before and after them to know which were marked. Errors that a caller may tell apart: *attach.MissingFeature,
// attach.ErrPermission, *attach.NoQueue for a port that is to be sampled and has no queue with a
// backlog. On an error nothing stays attached.
func Start(ports []Port) (*Recorder, error) {
	if len(ports) > maxPorts {
		return nil, fmt.Errorf("measure: %d ports: at most %d", len(ports), maxPorts)
	}
	if err := attach.CheckMeasure(); err != nil {
		return nil, fmt.Errorf("measure: %w", err)
	}
	spec, err := loadMeasure()
	if err != nil {
		return nil, fmt.Errorf("measure: read the embedded programs: %w", err)
	}
	spec.Maps[measureMapRecords].MaxEntries = ringBytes(ports)
	if err := spec.Variables[measureVarStepNs].Set(uint64(Step)); err != nil {
		return nil, fmt.Errorf("measure: set the grid: %w", err)
	}
	r := &Recorder{ports: ports, stop: make(chan struct{})}
	r.init(len(ports))
	if err := spec.LoadAndAssign(&r.objects, nil); err != nil {
		return nil, fmt.Errorf("measure: load programs: %w", err)
	}
	if err := r.attach(); err != nil {
		return nil, errors.Join(fmt.Errorf("measure: %w", err), r.release())
	}
	r.stopped.Add(1)
	go r.read(r.stop)
	return r, nil
}

// ringBytes sizes the ring buffer: room for 2 s of samples of all ports, should user space not get a
// CPU for that long, and as much again for drops. A sample takes 56 bytes of it.
func ringBytes(ports []Port) uint32 {
	const perPort, least, most = 2 * 2 * 2000 * 56, 1 << 20, 1 << 26
	sampled := 0
	for _, p := range ports {
		if p.Sample {
			sampled++
		}
	}
	n := min(max(sampled*perPort, least), most)
	return 1 << bits.Len32(uint32(n-1))
}

func (r *Recorder) attach() (err error) {
	if r.reader, err = ringbuf.NewReader(r.objects.Records); err != nil {
		return fmt.Errorf("ring buffer: %w", err)
	}
	for id := range r.ports {
		if err := r.register(uint32(id)); err != nil {
			return err
		}
	}
	for _, prog := range []*ebpf.Program{r.objects.WeirEnqueue, r.objects.WeirDequeue, r.objects.WeirDrop} {
		l, err := link.AttachTracing(link.TracingOptions{Program: prog})
		if err != nil {
			return fmt.Errorf("attach %s: %w", programName(prog), err)
		}
		r.links = append(r.links, l)
	}
	return nil
}

// register tells the programs of a port and of the state of its queue at this moment.
func (r *Recorder) register(id uint32) error {
	p := &r.ports[id]
	state := measurePort{Id: id}
	if p.Sample {
		queue, err := p.ref().QueueWithBacklog()
		if err != nil {
			return err
		}
		state.Sample = 1
		state.BacklogBytes, state.CounterBytes, state.CounterDrops = queue.BacklogBytes, queue.SentBytes, queue.Drops
		state.NextNs = roundUp(monotonic(), int64(Step))
	}
	if err := r.objects.Ports.Put(p.key(), state); err != nil {
		return fmt.Errorf("port %s: register: %w", p.Name, err)
	}
	if !p.Sample {
		return nil
	}
	// Departure first: what it finds without a note of arrival it leaves alone.
	if err := r.attachTCX(p, r.objects.WeirDeparture, link.Tail()); err != nil {
		return err
	}
	return r.attachTCX(p, r.objects.WeirArrival, link.Head())
}

// attachTCX puts one of the two programs around the laws to its end of a port's egress chain.
func (r *Recorder) attachTCX(p *Port, prog *ebpf.Program, where link.Anchor) error {
	return p.ref().In(func() error {
		l, err := link.AttachTCX(link.TCXOptions{
			Interface: p.Ifindex, Program: prog, Attach: ebpf.AttachTCXEgress, Anchor: where,
		})
		if err != nil {
			return fmt.Errorf("attach %s to %s: %w", programName(prog), p.Name, err)
		}
		r.links = append(r.links, l)
		return nil
	})
}

// Stop detaches the program and reads what it had not yet reported. Stop may be called again.
func (r *Recorder) Stop() error {
	if r.stop == nil {
		return nil
	}
	close(r.stop)
	r.stop = nil
	r.stopped.Wait()
	err := errors.Join(r.checkFirst(), r.detach())
	// Nothing runs any more: what is in the ring is all there will be.
	r.drain()
	if r.readErr != nil {
		err = errors.Join(err, fmt.Errorf("ring buffer: %w", r.readErr))
	}
	err = errors.Join(err, r.readFinal(), r.release())
	if err != nil {
		return fmt.Errorf("measure: stop: %w", err)
	}
	return nil
}

// checkFirst makes sure that no program has come before weir_arrival: what it marked would have passed as
// marked on arrival. A port that is gone is not asked.
func (r *Recorder) checkFirst() error {
	info, err := r.objects.WeirArrival.Info()
	if err != nil {
		return fmt.Errorf("ask for weir_arrival: %w", err)
	}
	arrival, _ := info.ID()
	var errs []error
	for i := range r.ports {
		p := &r.ports[i]
		if !p.Sample {
			continue
		}
		var chain []link.AttachedProgram
		err := p.ref().In(func() (err error) {
			chain, err = attach.ProgramsAt(p.Ifindex, ebpf.AttachTCXEgress)
			return err
		})
		if err == nil && len(chain) > 0 && chain[0].ID != arrival {
			errs = append(errs, fmt.Errorf("port %s: a program was attached in front of the measuring one: its marks were not counted; attach laws before measuring starts", p.Name))
		}
	}
	return errors.Join(errs...)
}

// detach takes the programs off and waits until none runs on any CPU.
func (r *Recorder) detach() error {
	var errs []error
	for _, l := range r.links {
		errs = append(errs, l.Close())
	}
	r.links = nil
	// Programs run under RCU, and this system call waits for a grace period of it.
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); errno != 0 {
		errs = append(errs, fmt.Errorf("wait for running programs: membarrier: %w", errno))
	}
	return errors.Join(errs...)
}

// release returns back everything that is held in the kernel.
func (r *Recorder) release() error {
	var errs []error
	for _, l := range r.links {
		errs = append(errs, l.Close())
	}
	r.links = nil
	if r.reader != nil {
		errs = append(errs, r.reader.Close())
		r.reader = nil
	}
	return errors.Join(append(errs, r.objects.Close())...)
}

// MEMBARRIER_CMD_GLOBAL of linux/membarrier.h.
const membarrierGlobal = 1

func monotonic() int64 {
	var ts unix.Timespec
	// The clock of bpf_ktime_get_ns; reading it cannot fail.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

func roundUp(v, step int64) uint64 { return uint64((v + step - 1) / step * step) }
