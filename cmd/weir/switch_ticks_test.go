package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/testnet"
	"weir/datapath/testnet/timers"
)

// tickWatch finds the longest time between two ticks of a port's timer, from the kernel's trace of expired timers.
type tickWatch struct {
	t    *testing.T
	w    *timers.Watch
	slot uint32
}

// watchTicks watches a port that is pinned now, for the length of the test.
func (m *machine) watchTicks(name string) *tickWatch {
	m.t.Helper()
	slot := portOf(m.read(), name).ID
	var id ebpf.MapID
	m.Switch.Must(m.t, func() error {
		pinned, err := ebpf.LoadPinnedMap(filepath.Join(pinDir, "timers"), nil)
		if err != nil {
			return err
		}
		defer func() { _ = pinned.Close() }()
		info, err := pinned.Info()
		if err == nil {
			id, _ = info.ID()
		}
		return err
	})
	return &tickWatch{m.t, timers.NewWatch(m.t, id), slot}
}

// undisturbed returns the longest gap between ticks while the switch is left alone, over 30 parts of the load: the
// effect of the machine's interrupts, other work and hypervisor on a timer. Gaps under a fault are compared with this
// one, measured in the same run.
func (w *tickWatch) undisturbed(streams *testnet.Streams) time.Duration {
	w.t.Helper()
	w.mark()
	for range rounds(1, 30) {
		streams.Progress(w.t, 1_000_000)
	}
	longest, ticks := w.since()
	w.t.Logf("undisturbed: longest gap between %d ticks: %v", ticks, longest.Round(10*time.Microsecond))
	return longest
}

// mark begins a new measurement.
func (w *tickWatch) mark() { w.w.Mark(w.t, w.slot) }

// since returns the longest gap since the mark, and the number of ticks.
func (w *tickWatch) since() (longest time.Duration, ticks uint64) {
	w.t.Helper()
	t := w.w.Since(w.t, w.slot)
	return t.Longest, t.Count
}
