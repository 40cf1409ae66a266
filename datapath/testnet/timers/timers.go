// Package timers reports when BPF timers ran, for tests. It reads the kernel's trace point of expiring timers,
// not what the programs record.
package timers

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -type ticks timers bpf/timers.bpf.c -- -O2 -g -mcpu=v3 -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror

// Watch watches the timers of one map.
type Watch struct {
	objects timersObjects
	link    link.Link
}

// Ticks is what one timer did since Mark.
type Ticks struct {
	Count   uint64
	Longest time.Duration // between two runs, but for the one before Mark
}

// NewWatch watches the timers of the array map with this id for the length of the test.
func NewWatch(tb testing.TB, id ebpf.MapID) *Watch {
	tb.Helper()
	function, err := symbol("bpf_timer_cb")
	if err != nil {
		tb.Fatal(err)
	}
	spec, err := loadTimers()
	if err != nil {
		tb.Fatal(err)
	}
	for name, value := range map[string]any{timersVarTimerFunction: function, timersVarMapId: uint32(id)} {
		if err := spec.Variables[name].Set(value); err != nil {
			tb.Fatal(err)
		}
	}
	w := &Watch{}
	if err := spec.LoadAndAssign(&w.objects, nil); err != nil {
		tb.Fatalf("load: %+v", err)
	}
	if w.link, err = link.AttachTracing(link.TracingOptions{Program: w.objects.TimersWatch}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _, _ = w.link.Close(), w.objects.Close() })
	return w
}

// symbol finds a function of the kernel.
func symbol(name string) (address uint64, err error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 3 && fields[2] == name {
			_, err := fmt.Sscanf(fields[0], "%x", &address)
			return address, err
		}
	}
	return 0, fmt.Errorf("the kernel has no function %s", name)
}

// Mark begins a new measurement.
func (w *Watch) Mark(tb testing.TB, slot uint32) {
	tb.Helper()
	if err := w.objects.Seen.Put(slot, timersTicks{}); err != nil {
		tb.Fatal(err)
	}
}

// Since returns what the timer of one element of the map did since Mark.
func (w *Watch) Since(tb testing.TB, slot uint32) Ticks {
	tb.Helper()
	var t timersTicks
	if err := w.objects.Seen.Lookup(slot, &t); err != nil {
		tb.Fatal(err)
	}
	return Ticks{Count: t.Count, Longest: time.Duration(t.LongestNs)}
}
