package network

import (
	"testing"
	"unsafe"

	"weir/law"
)

// A packet from the pool has nothing left of its earlier use.
func TestNewPacketIsZeroed(t *testing.T) {
	n, _ := build(t, pair(1e9, 0, law.Limit{N: 10_000}), Options{})
	pk := n.NewPacket()
	for i := range unsafe.Offsetof(pk.blocks) {
		*(*byte)(unsafe.Add(unsafe.Pointer(pk), i)) = 1
	}
	pk.state = borrowed
	n.Free(pk)
	again := n.NewPacket()
	if again != pk {
		t.Fatal("it is another packet")
	}
	if want := (Packet{scale: -1}); *again != want {
		t.Errorf("%+v", *again)
	}
}

// Packets and ports do not share cache lines of 64 bytes. The fields that every hop needs are in as few lines as
// possible.
func TestCacheLines(t *testing.T) {
	const line = 64
	if size, first := unsafe.Sizeof(Packet{}), unsafe.Offsetof(Packet{}.blocks); size != 2*line || first != line {
		t.Errorf("a packet has %d bytes, the first line %d", size, first)
	}
	if size, few := unsafe.Sizeof(Port{}), unsafe.Offsetof(Port{}.server); size%line != 0 || few != 4*line {
		t.Errorf("a port has %d bytes, %d of them for every packet", size, few)
	}
	if size := unsafe.Sizeof(Port{}); leastPorts*size <= 32<<10 {
		t.Errorf("%d ports are %d bytes", leastPorts, leastPorts*size)
	}
	n, _ := build(t, pair(1e9, 0, law.Limit{N: 10_000}), Options{})
	for i, p := range n.Ports {
		if at := uintptr(unsafe.Pointer(p)); at%line != 0 || i > 0 && at-uintptr(unsafe.Pointer(n.Ports[i-1])) != unsafe.Sizeof(*p) {
			t.Errorf("port %d lies at %#x", i, at)
		}
	}
	for i := range 2*slabPackets + 1 {
		if at := uintptr(unsafe.Pointer(n.NewPacket())); at%(2*line) != 0 {
			t.Fatalf("packet %d lies at %#x", i, at)
		}
	}
}
