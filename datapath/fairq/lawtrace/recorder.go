package lawtrace

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// poll is how often the ring buffer is read. The program never wakes the reader.
const poll = 10 * time.Millisecond

// Recorder records one switch: fairq.Config.Trace. It starts empty with New, reads what the program writes from
// then on, and ends with Stop, after the switch's FairQ is closed.
type Recorder struct {
	spec    *ebpf.CollectionSpec
	records *ebpf.Map
	orders  *ebpf.Map
	reader  *ringbuf.Reader
	record  ringbuf.Record // reused

	taken   atomic.Bool // by an Attachment
	stop    chan struct{}
	stopped sync.WaitGroup
	most    int // bytes of raw
	raw     []byte
	err     error // the first error: later records are not kept
	ended   bool  // Stop was called
}

// ringBytes has room for some seconds of 200 Mbit/s with credits, in case user space gets no processor for so long.
const ringBytes = 1 << 26

// bytesMax is the largest trace in bytes: two minutes of 200 Mbit/s at 17 ports.
const bytesMax = 1 << 30

// New returns a recorder. The caller must call Stop.
func New() (*Recorder, error) { return newRecorder(ringBytes, bytesMax) }

func newRecorder(ringBytes uint32, bytesMax int) (*Recorder, error) {
	spec, err := loadLawtrace()
	if err != nil {
		return nil, fmt.Errorf("law trace: read the embedded program: %w", err)
	}
	spec.Maps[lawtraceMapLawRecords].MaxEntries = ringBytes
	r := &Recorder{spec: spec, most: bytesMax, stop: make(chan struct{})}
	if r.records, err = ebpf.NewMap(spec.Maps[lawtraceMapLawRecords]); err == nil {
		r.orders, err = ebpf.NewMap(spec.Maps[lawtraceMapLawOrders])
	}
	if err == nil {
		r.reader, err = ringbuf.NewReader(r.records)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("law trace: %w", err), r.release())
	}
	r.stopped.Add(1)
	go r.read()
	return r, nil
}

// Spec returns the switch program with its hooks: the same programs, variables and maps, and those of Maps in
// addition. The caller may change the result. A second call returns an error: the ports of two switches would
// share their numbers.
func (r *Recorder) Spec() (*ebpf.CollectionSpec, error) {
	if r.taken.Swap(true) {
		return nil, errors.New("law trace: this recorder already records a switch: make another one")
	}
	return r.spec.Copy(), nil
}

// Maps returns the recorder's own maps, by name. Every instance of the program is loaded with them.
func (r *Recorder) Maps() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{lawtraceMapLawRecords: r.records, lawtraceMapLawOrders: r.orders}
}

// read reads the ring buffer until Stop.
func (r *Recorder) read() {
	defer r.stopped.Done()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-tick.C:
			r.drain()
		}
	}
}

// drain reads what is in the ring buffer now.
func (r *Recorder) drain() {
	r.reader.SetDeadline(time.Unix(0, 1)) // in the past: do not wait
	for r.err == nil {
		err := r.reader.ReadInto(&r.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err == nil && len(r.raw)+len(r.record.RawSample) > r.most {
			err = fmt.Errorf("more than %d bytes of records", r.most)
		}
		if r.err = err; err == nil {
			r.raw = append(r.raw, r.record.RawSample...)
		}
	}
}

// Stop returns the whole trace, once. It returns an error if a single record was lost. Close the switch's FairQ
// before: nothing may call its law afterwards.
func (r *Recorder) Stop() (*Trace, error) {
	if r.ended {
		return nil, errors.New("law trace: the recorder was stopped before")
	}
	r.ended = true
	close(r.stop)
	r.stopped.Wait()
	r.drain()
	lost, calls, err := r.counts()
	err = errors.Join(r.err, err, r.release())
	if err == nil && lost > 0 {
		err = fmt.Errorf("%d records were lost because the ring buffer was full: run it on a machine that is less busy", lost)
	}
	if err != nil {
		return nil, fmt.Errorf("law trace: %w", err)
	}
	t, err := newTrace(r.raw)
	if err == nil && uint64(len(t.order)) != calls {
		return nil, fmt.Errorf("law trace: %d of %d records arrived", len(t.order), calls)
	}
	return t, err
}

// counts returns how many records were lost, and made, at all ports.
func (r *Recorder) counts() (lost, made uint64, err error) {
	var id uint32
	var order lawtraceLawOrder
	entries := r.orders.Iterate()
	for entries.Next(&id, &order) {
		lost += order.Lost
		made += order.Number + order.Credits
	}
	return lost, made, entries.Err()
}

func (r *Recorder) release() error {
	var errs []error
	if r.reader != nil {
		errs = append(errs, r.reader.Close())
	}
	return errors.Join(append(errs, r.records.Close(), r.orders.Close())...)
}
