package telemetry

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"weir/law"
	events "weir/law/telemetry"
)

// Values of bpf/telemetry/telemetry.h.
const (
	collectMarks    = 1
	collectArrivals = 2
	halfBit         = 1 << 63
)

// shared is the map `ports` in this process's memory. telemetry.h says who may write what, and when.
type shared struct {
	memory []byte
	ports  []kernelPortCounts
}

func mapShared(m *ebpf.Map, n int) (*shared, error) {
	bytes := n * int(unsafe.Sizeof(kernelPortCounts{}))
	page := unix.Getpagesize()
	memory, err := unix.Mmap(m.FD(), 0, (bytes+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the counters into memory: %w", err)
	}
	return &shared{memory, unsafe.Slice((*kernelPortCounts)(unsafe.Pointer(&memory[0])), n)}, nil
}

func (s *shared) close() error {
	if s == nil {
		return nil
	}
	return unix.Munmap(s.memory)
}

// portState is what a reading knows of a port's halves.
type portState struct {
	active  uint64 // the half that counts now: 0 or 1
	pending bool   // the other half is not read yet
	entered uint64 // how many packets entered that other half
}

// flip makes the other half of a port count, unless the other half is still to be read.
func (s *portState) flip(p *kernelPortCounts) {
	if s.pending {
		return
	}
	next := s.active ^ 1
	s.entered = atomic.SwapUint64(&p.Word, next<<63) &^ halfBit
	s.active, s.pending = next, true
}

// settleFor is how long a reading waits for programs that still run. They take microseconds and are not preempted, but an
// interrupt or a hypervisor can stop the processor.
const settleFor = 200 * time.Microsecond

// settled waits until no program writes to the half that must be read.
func (s *portState) settled(h *kernelHalf) bool {
	if atomic.LoadUint64(&h.Done) == s.entered {
		return true
	}
	for end := time.Now().Add(settleFor); time.Now().Before(end); {
		if atomic.LoadUint64(&h.Done) == s.entered {
			return true
		}
	}
	return false
}

// take moves what a half counted into the events, and clears the half.
func (h *kernelHalf) take(p *events.Port, a *events.PortArrivals) {
	if h.Done == 0 {
		return
	}
	p.Packets, p.Bytes, p.PeakBytes = h.Packets, h.Bytes, uint64(h.PeakBytes)
	p.Marks.Packets, p.Marks.Unknown, p.Marks.Rest = h.Ce, h.CeUnknown, h.CeRest
	for i := 0; h.Vms > 0 && i < len(h.ByVm); i++ {
		if m := &h.ByVm[i]; m.Vm != 0 {
			p.Marks.ByVM = append(p.Marks.ByVM, events.VMMarks{VM: law.VM(m.Vm), Packets: uint64(m.Packets)})
			*m = kernelVmMarks{}
		}
	}
	a.Counts = events.Counts{SYN: h.Syn, SYNACK: h.SynAck, FIN: h.Fin, RST: h.Rst, Resume: h.Resume, Found: h.Found, Request: h.Request}
	a.Rest = uint64(h.PairsRest)
	for i := 0; h.Pairs > 0 && i < len(h.Pair); i++ {
		if r := &h.Pair[i]; r.Hash != 0 {
			a.Pairs = append(a.Pairs, events.Pair{Source: addrOf(&r.Source), Destination: addrOf(&r.Destination), Kinds: events.Kind(r.Kinds),
				Opened: r.Opened, Resumed: r.Resumed, Requested: r.Requested})
			*r = kernelPair{}
		}
	}
	h.Packets, h.Bytes, h.PeakBytes, h.Ce, h.CeUnknown, h.CeRest, h.Vms = 0, 0, 0, 0, 0, 0, 0
	h.Syn, h.SynAck, h.Fin, h.Rst, h.Resume, h.Found, h.Request, h.Pairs, h.PairsRest = 0, 0, 0, 0, 0, 0, 0, 0, 0
	atomic.StoreUint64(&h.Done, 0)
}

// addrOf converts an address of the kernel's tables: IPv4 is ::ffff:a.b.c.d there.
func addrOf(words *[4]uint32) netip.Addr {
	var b [16]byte
	for i, w := range words {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	return netip.AddrFrom16(b).Unmap()
}

func addressKey(a netip.Addr) (key kernelAddress) {
	b := a.As16()
	for i := range key.Word {
		key.Word[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return key
}
