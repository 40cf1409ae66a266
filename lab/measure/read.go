package measure

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// poll is the interval at which the ring buffer is emptied. The programs never wake the reader, so that it costs a
// few wake-ups a second, independent of the traffic.
const poll = 25 * time.Millisecond

// The kinds of records of bpf/measure.bpf.c.
const (
	recordSample = 1
	recordDrop   = 2
)

// records are those read from the ring buffer so far.
type records struct {
	samples [][]measureSample // by port
	drops   []measureDrop
	lost    uint64
	record  ringbuf.Record // reused
}

func (r *records) init(ports int) { r.samples = make([][]measureSample, ports) }

// read empties the ring buffer until stop is closed.
func (r *Recorder) read(stop <-chan struct{}) {
	defer r.stopped.Done()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			r.drain()
		}
	}
}

// drain reads what is in the ring buffer now.
func (r *Recorder) drain() {
	// A deadline in the past: read what is there without waiting.
	r.reader.SetDeadline(time.Unix(0, 1))
	for {
		err := r.reader.ReadInto(&r.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err == nil {
			err = r.take(r.record.RawSample)
		}
		if err != nil {
			r.readErr = err
			return
		}
	}
}

// take stores one record.
func (r *records) take(b []byte) error {
	le := binary.LittleEndian
	if len(b) < 4 {
		return fmt.Errorf("record of %d bytes", len(b))
	}
	switch kind := le.Uint32(b); {
	case kind == recordSample && len(b) >= int(unsafe.Sizeof(measureSample{})):
		s := decodeSample(b)
		if int(s.Port) >= len(r.samples) {
			return fmt.Errorf("record of unknown port %d", s.Port)
		}
		r.samples[s.Port] = append(r.samples[s.Port], s)
	case kind == recordDrop && len(b) >= int(unsafe.Sizeof(measureDrop{})):
		d := decodeDrop(b)
		if int(d.Port) >= len(r.samples) {
			return fmt.Errorf("drop at unknown port %d", d.Port)
		}
		r.drops = append(r.drops, d)
	default:
		return fmt.Errorf("record of unknown kind %d, %d bytes", kind, len(b))
	}
	return nil
}

// Records are decoded field by field: there are thousands a second, and reflection would cost more than the kernel
// program.
func decodeSample(b []byte) measureSample {
	var s measureSample
	le := binary.LittleEndian
	s.Kind = recordSample
	s.Port = le.Uint32(b[unsafe.Offsetof(s.Port):])
	s.FirstNs = le.Uint64(b[unsafe.Offsetof(s.FirstNs):])
	s.Marks = le.Uint64(b[unsafe.Offsetof(s.Marks):])
	s.SentBytes = le.Uint64(b[unsafe.Offsetof(s.SentBytes):])
	s.Count = le.Uint32(b[unsafe.Offsetof(s.Count):])
	s.BacklogBytes = le.Uint32(b[unsafe.Offsetof(s.BacklogBytes):])
	s.Drops = le.Uint32(b[unsafe.Offsetof(s.Drops):])
	return s
}

func decodeDrop(b []byte) measureDrop {
	var d measureDrop
	le := binary.LittleEndian
	d.Kind = recordDrop
	d.Port = le.Uint32(b[unsafe.Offsetof(d.Port):])
	d.AtNs = le.Uint64(b[unsafe.Offsetof(d.AtNs):])
	d.Bytes = le.Uint32(b[unsafe.Offsetof(d.Bytes):])
	d.Packets = le.Uint16(b[unsafe.Offsetof(d.Packets):])
	d.Law = b[unsafe.Offsetof(d.Law)]
	d.Family = b[unsafe.Offsetof(d.Family)]
	d.Proto = b[unsafe.Offsetof(d.Proto)]
	// Port numbers are in network byte order.
	d.SrcPort = binary.BigEndian.Uint16(b[unsafe.Offsetof(d.SrcPort):])
	d.DstPort = binary.BigEndian.Uint16(b[unsafe.Offsetof(d.DstPort):])
	copy(d.Src[:], b[unsafe.Offsetof(d.Src):])
	copy(d.Dst[:], b[unsafe.Offsetof(d.Dst):])
	return d
}

// readFinal reads the maps after the programs are detached: the state of each port, lost records, and the cost of
// the programs.
func (r *Recorder) readFinal() error {
	r.final = make([]measurePort, len(r.ports))
	for i := range r.ports {
		if err := r.objects.Ports.Lookup(r.ports[i].key(), &r.final[i]); err != nil {
			return fmt.Errorf("port %s: read its state: %w", r.ports[i].Name, err)
		}
	}
	if err := r.objects.LostRecords.Get(&r.lost); err != nil {
		return fmt.Errorf("read the count of lost records: %w", err)
	}
	for _, prog := range r.programs() {
		stats, err := prog.Stats()
		if err != nil {
			return fmt.Errorf("read the statistics of %s: %w", programName(prog), err)
		}
		r.costs = append(r.costs, Cost{Program: programName(prog), Events: stats.RunCount, Time: stats.Runtime, Missed: stats.RecursionMisses})
	}
	return nil
}

func (r *Recorder) programs() []*ebpf.Program {
	o := &r.objects
	return []*ebpf.Program{o.WeirArrival, o.WeirDeparture, o.WeirEnqueue, o.WeirDequeue, o.WeirDrop}
}

func programName(p *ebpf.Program) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(p.String(), p.Type().String()+"("), ")")
	return name
}
