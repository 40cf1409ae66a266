package host_test

import (
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/internal/frames"
	"weir/datapath/internal/hosttest"
	"weir/internal/testroot"
)

// A large packet that a guest leaves to its virtio device comes without the number of its segments: the kernel sets gso_segs to 0. It
// counts as its segments nevertheless.
func TestGuest_CountsSegmentsOfVirtio(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	const atGSOSegments, atGSOSize = 41, 44
	h := newBench(t)
	for _, row := range []struct{ payload, segments, size, want int }{
		{1000, 0, 100, 10}, {1000, 10, 100, 10}, {1000, 0, 0, 1}, {50, 0, 100, 1}, {1000, 0, 1000, 1},
	} {
		k := talk{vmPort: 3000}
		var ctx context
		ctx[atIngress], ctx[atGSOSegments], ctx[atGSOSize] = benchPort, uint32(row.segments), uint32(row.size)
		in := k.segment(false, frames.ACK, 60000, frames.List(1, frames.Timestamps(1, 2)), row.payload).Bytes()
		if _, err := h.WeirHostUp.Run(&ebpf.RunOptions{Data: in, Context: ctx}); err != nil {
			t.Fatal(err)
		}
		if got := h.counted(t, func(c *hosttest.HostHostCounts) uint64 { return c.Sent }); got != uint64(row.want) {
			t.Errorf("%d B of payload, %d segments of %d B: counted as %d packets, want %d", row.payload, row.segments, row.size, got, row.want)
		}
	}
}
