package host_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/frames"
	"weir/datapath/internal/hosttest"
)

const (
	benchUplink, benchPort = 3, 2 // ifindexes; a test run is at loopback, 1
	benchForEver           = 1 << 62
)

// hostBench is the host's programs with VM 1 in its tables, and a known connection.
type hostBench struct{ hosttest.HostObjects }

func newBench(b testing.TB) *hostBench {
	b.Helper()
	spec, err := hosttest.LoadHost()
	if err != nil {
		b.Fatal(err)
	}
	for name, value := range map[string]uint32{hosttest.HostVarUplinkIfindex: benchUplink, hosttest.HostVarRelaxedClass: 2} {
		if err := spec.Variables[name].Set(value); err != nil {
			b.Fatal(err)
		}
	}
	h := &hostBench{}
	if err := spec.LoadAndAssign(&h.HostObjects, nil); err != nil {
		b.Fatalf("%+v", err)
	}
	b.Cleanup(func() { _ = h.Close() })
	vm := hosttest.HostHostVm{Number: 1, Ifindex: benchPort, Class: 16, Addresses: 1}
	for i := range vm.Mac {
		vm.Mac[i] = binary.LittleEndian.Uint16(vmMAC[2*i:])
	}
	vm.Address[0].Address = benchWords(vmIPv4)
	for i := range vm.Address[0].Mask {
		vm.Address[0].Mask[i] = 0xffffffff
	}
	for _, err := range []error{
		h.Vms.Put(uint32(0), vm), h.NearPorts.Put(uint32(benchPort), uint32(1)), h.NearPorts.Put(uint32(1), uint32(1)), h.Lookups.Put(hosttest.HostLookupKey{Ifindex: 1}, uint64(1)),
		h.Owners.Put(uint32(1), hosttest.HostGrantOwner{HeartbeatNs: attach.MonotonicNs() + 3600e9}),
	} {
		if err != nil {
			b.Fatal(err)
		}
	}
	k := talk{vmPort: 1000}
	for i, flags := range []byte{frames.SYN, frames.SYN | frames.ACK} {
		if _, err := h.WeirHostVm.Run(&ebpf.RunOptions{Data: k.segment(i == 1, flags, 60000, scale7, 0).Bytes()}); err != nil {
			b.Fatal(err)
		}
	}
	return h
}

func benchWords(a netip.Addr) (w [4]uint32) {
	b := a.As16()
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return w
}

// benchGrants is one valid grant of owner 1.
func benchGrants(value uint64) (g hosttest.HostGrants) {
	g.Grant[0].Value, g.Grant[0].ExpiresNs, g.Grant[0].Owner, g.Grant[0].Flags = value, benchForEver, 1, 1
	return g
}

// BenchmarkHost times each path of the host's programs above an empty program, in hash lookups of the same run.
func BenchmarkHost(b *testing.B) {
	h := newBench(b)
	k, other := talk{vmPort: 1000}, talk{vmPort: 1001}
	stamps := frames.List(1, frames.Timestamps(1, 2))
	ack := k.segment(true, frames.ACK, 60000, stamps, 0).Bytes()
	udp := frames.Packet(frames.Link{Dst: vmMAC, Src: peerMAC}, frames.IP{From: peerIPv4, To: vmIPv4}, frames.UDP, make([]byte, 40))
	all := ^uint64(0)
	passing := hosttest.HostHostGrants{MssMax: 1460}
	elsewhere := hosttest.HostHostGrants{MssMax: 1460, Windows: 2, Generation: 1}
	hit := hosttest.HostHostGrants{MssMax: 1460, Windows: 2, Generation: 1, Peers: [4]uint64{all, all, all, all}}
	flows := hosttest.HostHostGrants{MssMax: 1460, Windows: 4, Generation: 2, Flows: [4]uint64{all, all, all, all}}
	byVM := hosttest.HostHostGrants{MssMax: 1460, Windows: 1, Window: benchGrants(20000)}
	rate := hosttest.HostHostGrants{MssMax: 1460, Rate: benchGrants(1e6)}
	wide := byVM
	wide.Window = benchGrants(64e6)
	pair, flow := hosttest.HostHostPair{Peer: benchWords(peerIPv4)}, hosttest.HostHostFlow{Ports: 80<<8 | 1000&0xff<<24 | 1000>>8<<16, Peer: benchWords(peerIPv4), Own: benchWords(vmIPv4)}
	for i, err := range []error{h.Pairs.Put(pair, uint32(1)), h.FlowGrants.Put(flow, uint32(2)), h.Keyed.Put(uint32(1), benchGrants(20000)), h.Keyed.Put(uint32(2), benchGrants(10000))} {
		if err != nil {
			b.Fatal(i, err)
		}
	}
	missed := k.segment(true, frames.ACK, 60000, stamps, 0)
	missed.From = netip.MustParseAddr("10.0.0.77")
	guest := frames.Packet(frames.Link{Dst: peerMAC, Src: vmMAC}, frames.IP{From: vmIPv4, To: peerIPv4}, frames.UDP, make([]byte, 40))
	spoofed := frames.Packet(frames.Link{Dst: peerMAC, Src: otherMAC}, frames.IP{From: vmIPv4, To: peerIPv4}, frames.UDP, make([]byte, 40))
	for _, r := range []struct {
		name           string
		grants         hosttest.HostHostGrants
		program, above *ebpf.Program
		in             []byte
		from           uint32
		counter        func(c *hosttest.HostHostCounts) uint64
	}{
		{"to the VM: other traffic", passing, h.WeirHostVm, h.Empty, udp, benchUplink, func(c *hosttest.HostHostCounts) uint64 { return c.NotTcp }},
		{"to the VM: ACK, no grant", passing, h.WeirHostVm, h.Empty, ack, benchUplink, func(c *hosttest.HostHostCounts) uint64 { return c.Ungranted }},
		{"to the VM: ACK, grants of other pairs", elsewhere, h.WeirHostVm, h.Empty, ack, benchUplink, func(c *hosttest.HostHostCounts) uint64 { return c.Ungranted }},
		{"to the VM: ACK, another pair with the same bit", hit, h.WeirHostVm, h.Empty, missed.Bytes(), benchUplink, func(c *hosttest.HostHostCounts) uint64 { return c.Ungranted }},
		{"to the VM: ACK, unknown handshake", byVM, h.WeirHostVm, h.Empty, other.segment(true, frames.ACK, 60000, stamps, 0).Bytes(), benchUplink, func(c *hosttest.HostHostCounts) uint64 { return c.Unknown }},
		{"to the VM: ACK small enough", wide, h.WeirHostVm, h.Empty, ack, benchUplink, func(c *hosttest.HostHostCounts) uint64 { return c.Smaller }},
		{"to the VM: ACK limited, grant of the VM", byVM, h.ClampAndUndo, h.Undo, ack, benchUplink, func(c *hosttest.HostHostCounts) uint64 { return c.Limited }},
		{"to the VM: ACK limited, grant of the pair", hit, h.ClampAndUndo, h.Undo, ack, benchUplink, func(c *hosttest.HostHostCounts) uint64 { return c.Limited }},
		{"to the VM: ACK limited, grant of the flow", flows, h.ClampAndUndo, h.Undo, ack, benchUplink, func(c *hosttest.HostHostCounts) uint64 { return c.Limited }},
		{"from the host", passing, h.WeirHostUp, h.Empty, guest, 0, nil},
		{"from the VM: UDP", passing, h.WeirHostUp, h.Empty, guest, benchPort, func(c *hosttest.HostHostCounts) uint64 { return c.Relaxed }},
		{"from the VM: TCP", passing, h.WeirHostUp, h.Empty, k.segment(false, frames.ACK, 60000, stamps, 0).Bytes(), benchPort, func(c *hosttest.HostHostCounts) uint64 { return c.Relaxed }},
		{"from the VM: UDP, rate granted", rate, h.WeirHostUp, h.Empty, guest, benchPort, func(c *hosttest.HostHostCounts) uint64 { return c.InClass }},
		{"from the VM: spoofed", passing, h.WeirHostUp, h.Empty, spoofed, benchPort, func(c *hosttest.HostHostCounts) uint64 { return c.SpoofedMac }},
	} {
		b.Run(r.name, func(b *testing.B) {
			if err := h.VmGrants.Put(uint32(0), r.grants); err != nil {
				b.Fatal(err)
			}
			h.counted(b, func(*hosttest.HostHostCounts) uint64 { return 0 })
			var ctx context
			ctx[atIngress] = r.from
			unit := bpftest.Bench{Empty: h.Empty, Lookup: h.HashLookup}
			unit.Report(b, ebpf.RunOptions{Data: r.in, Context: ctx}, r.program, r.above, 1)
			if r.counter != nil && h.counted(b, r.counter) < uint64(1000*b.N) {
				b.Fatal("the packets did not take this path")
			}
		})
	}
}

// counted sums a counter over the CPUs and resets all counters to 0.
func (h *hostBench) counted(b testing.TB, counter func(c *hosttest.HostHostCounts) uint64) (sum uint64) {
	b.Helper()
	var cpus []hosttest.HostHostCounts
	if err := h.Counts.Lookup(uint32(0), &cpus); err != nil {
		b.Fatal(err)
	}
	for i := range cpus {
		sum += counter(&cpus[i])
	}
	if err := h.Counts.Put(uint32(0), make([]hosttest.HostHostCounts, len(cpus))); err != nil {
		b.Fatal(err)
	}
	return sum
}
