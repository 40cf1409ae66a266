package telemetry

import (
	"reflect"
	"testing"

	"github.com/cilium/ebpf/asm"

	events "weir/law/telemetry"
)

// fill sets every number in v, which has no pointers, to n.
func fill(v reflect.Value, n uint64) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	default:
		v.SetUint(n)
	}
}

// After a reading every count of the half is 0. A count that stays would be in the next reading of that half, too.
func TestHalf_IsClearAfterAReading(t *testing.T) {
	var h kernelHalf
	fill(reflect.ValueOf(&h).Elem(), 3)
	var p events.Port
	var a events.PortArrivals
	h.take(&p, &a)
	if h != (kernelHalf{}) {
		t.Errorf("left: %+v", h)
	}
	if p.Packets != 3 || p.PeakBytes != 3 || p.Marks.Rest != 3 || a.Counts.Request != 3 || a.Rest != 3 || len(p.Marks.ByVM) != events.MaxVMs || len(a.Pairs) != events.MaxPairs {
		t.Errorf("read %+v and %+v", p, a)
	}
}

// A half is read only when the last packet that entered it is done. The other half counts meanwhile, and the halves do not
// change again before.
func TestHalf_WaitsForItsLastPacket(t *testing.T) {
	var p kernelPortCounts
	var s portState
	enter := func() *kernelHalf { // as the program does
		at := p.Word >> 63
		p.Word++
		return &p.Half[at]
	}
	first, last := enter(), enter()
	first.Done++
	s.flip(&p)
	if s.settled(&p.Half[0]) {
		t.Fatal("one of two packets is done, and the half can be read")
	}
	if h := enter(); h != &p.Half[1] {
		t.Fatal("the old half counts after a reading has begun")
	}
	s.flip(&p) // the next reading
	if h := enter(); h != &p.Half[1] || p.Word != halfBit+2 {
		t.Fatalf("the halves changed before the old one was read: word %#x", p.Word)
	}
	last.Done++
	if !s.settled(&p.Half[0]) {
		t.Fatal("all packets are done, and the half cannot be read")
	}
}

// The first and the last atomic operation of the program are ordered: nothing is counted before a packet has entered its half,
// or after it is done.
func TestProgram_IsOrdered(t *testing.T) {
	spec, err := loadKernel()
	if err != nil {
		t.Fatal(err)
	}
	var atomics []asm.OpCode
	for i, ins := range spec.Programs[kernelProgWeirTelemetry].Instructions {
		if i > 0 && ins.Symbol() != "" {
			break // the functions that it calls
		}
		if ins.OpCode.Class() == asm.StXClass && ins.OpCode.Mode() == asm.AtomicMode {
			atomics = append(atomics, ins.OpCode)
		}
	}
	ordered := asm.FetchAdd.OpCode(asm.DWord)
	if n := len(atomics); n < 4 || atomics[0] != ordered || atomics[n-1] != ordered {
		t.Errorf("atomic operations %v, want %v at both ends", atomics, ordered)
	}
}
