// Package measure records the events at the queues of a lab's ports. Its kernel program is the same under every scheme (bpf/measure.bpf.c). It records backlog, bytes and marks on a fixed grid of time, and every drop. It
// changes no packet and is independent of the laws.
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

// Step is the interval of the grid of samples.
const Step = 500 * time.Microsecond

// Port is a port to be measured.
type Port struct {
	Name        string
	NetnsCookie uint64 // of its namespace: attach.NetnsCookie
	Ifindex     int    // in that namespace
	RateBps     int64
	BufferBytes int64
	Labels      []string
	Sample      bool // record its queue; drops are recorded at every port
	// Enter runs f on a thread in the port's namespace; nil: the caller is in it.
	Enter func(f func() error) error
}

func (p *Port) ref() attach.PortRef {
	return attach.PortRef{Name: p.Name, Ifindex: p.Ifindex, Enter: p.Enter}
}

func (p *Port) key() measurePortKey {
	return measurePortKey{NetnsCookie: p.NetnsCookie, Ifindex: uint32(p.Ifindex)}
}

// Recorder is a measurement, running or stopped.
type Recorder struct {
	ports   []Port
	objects measureObjects
	links   []link.Link
	reader  *ringbuf.Reader

	stop    chan struct{}
	stopped sync.WaitGroup
	readErr error

	records
	final []measurePort
	costs []Cost
}

// maxPorts is the size of the map of ports in bpf/measure.bpf.c.
const maxPorts = 4096

// Start attaches the measuring program. Laws must be attached before: the program must see packets before and
// after them to know which were marked. Errors that a caller can distinguish: *attach.MissingFeature,
// attach.ErrPermission, and *attach.NoQueue for a sampled port without a queue that has a backlog. After an error
// nothing stays attached.
func Start(ports []Port) (*Recorder, error) {
	if len(ports) > maxPorts {
		return nil, fmt.Errorf("measure: %d ports, but at most %d are possible", len(ports), maxPorts)
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
	if err := spec.LoadAndAssign(&r.objects, &ebpf.CollectionOptions{Cache: attach.KernelTypes()}); err != nil {
		return nil, fmt.Errorf("measure: load programs: %w", err)
	}
	if err := r.attach(); err != nil {
		return nil, errors.Join(fmt.Errorf("measure: %w", err), r.release())
	}
	r.stopped.Add(1)
	go r.read(r.stop)
	return r, nil
}

// ringBytes returns the size of the ring buffer: room for 2 s of samples of all ports, in case user space gets no
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
		return fmt.Errorf("open the ring buffer: %w", err)
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

// register enters a port into the programs' map, with the current state of its queue.
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
	// Departure first: it ignores packets without a note of arrival.
	if err := r.attachTCX(p, r.objects.WeirDeparture, link.Tail()); err != nil {
		return err
	}
	return r.attachTCX(p, r.objects.WeirArrival, link.Head())
}

// attachTCX attaches one of the two programs around the laws to its end of a port's egress chain.
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

// Stop detaches the programs and reads the remaining records. It may be called again.
func (r *Recorder) Stop() error {
	if r.stop == nil {
		return nil
	}
	close(r.stop)
	r.stop = nil
	r.stopped.Wait()
	err := errors.Join(r.checkFirst(), r.detach())
	// No program runs any more: the ring buffer is complete.
	r.drain()
	if r.readErr != nil {
		err = errors.Join(err, fmt.Errorf("read the ring buffer: %w", r.readErr))
	}
	err = errors.Join(err, r.readFinal(), r.release())
	if err != nil {
		return fmt.Errorf("measure: stop: %w", err)
	}
	return nil
}

// checkFirst checks that no program has been attached before weir_arrival: a packet that it marked would count as
// marked on arrival. A port that no longer exists is skipped.
func (r *Recorder) checkFirst() error {
	info, err := r.objects.WeirArrival.Info()
	if err != nil {
		return fmt.Errorf("read the id of weir_arrival: %w", err)
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

// detach detaches the programs and waits until none runs on any CPU.
func (r *Recorder) detach() error {
	var errs []error
	for _, l := range r.links {
		errs = append(errs, l.Close())
	}
	r.links = nil
	if err := awaitPrograms(membarrier); err != nil {
		errs = append(errs, fmt.Errorf("wait for running programs: %w", err))
	}
	return errors.Join(errs...)
}

// awaitPrograms waits for a grace period of RCU, under which programs run. The system call does that, but a kernel with
// nohz_full= refuses it. There, a change of a map of maps waits.
func awaitPrograms(barrier func() error) error {
	if err := barrier(); !errors.Is(err, unix.EINVAL) {
		return err
	}
	one := ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	inner, err := ebpf.NewMap(&one)
	if err != nil {
		return err
	}
	defer inner.Close()
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: &one})
	if err != nil {
		return err
	}
	defer outer.Close()
	return outer.Put(uint32(0), inner)
}

func membarrier() error {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); errno != 0 {
		return fmt.Errorf("membarrier: %w", errno)
	}
	return nil
}

// release releases all kernel objects.
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
