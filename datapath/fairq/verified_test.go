package fairq

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/fairq/lawtrace"
	"weir/datapath/internal/bpftest"
	"weir/internal/testroot"
)

// The verifier walks few instructions for every configuration of the switch program.
func TestPrograms_AreCheapToVerify(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	for _, scale := range []Scale{ScaleLearn, ScaleShim, ScaleUnify} {
		for _, shrink := range []Shrink{ShrinkAllow, ShrinkAvoid} {
			for _, count := range []Count{CountActive, CountHandshake} {
				p := loadedFor(t, Config{Scale: scale, Shrink: shrink, Count: count, UnifyShift: 7})
				bpftest.CheckVerified(t, fmt.Sprintf("fairq, scale %d, shrink %d, count %d", scale, shrink, count), p)
			}
		}
	}
	for _, credit := range []Credit{CreditPromises, CreditPaces} {
		p := loadedFor(t, Config{Credit: credit})
		bpftest.CheckVerifiedBelow(t, fmt.Sprintf("fairq, credit %d", credit), p, 70_000) // with the parking, and a law of its own
	}
	for _, count := range []Count{CountActive, CountHandshake} {
		p := loadedFor(t, Config{Count: count, Edge: EdgeMode{Interval: 10 * time.Millisecond}})
		bpftest.CheckVerified(t, "fairq in edge mode", p)
	}
}

// loadedFor returns the program of a port of a switch with this configuration.
func loadedFor(t *testing.T, c Config) *ebpf.Program {
	t.Helper()
	c = c.withDefaults()
	s, err := newSource(&c)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.openMaps()
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.loadPort(0, m, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = p.Close(), m.Close() })
	return p
}

// A program of its own records the law for a differential run: the one that switches run has none of its hooks.
func TestPrograms_HaveNoTrace(t *testing.T) {
	testroot.Need(t, "makes maps")
	spec, err := loadFairq()
	if err != nil {
		t.Fatal(err)
	}
	if names := traceNames(spec); len(names) > 0 {
		t.Errorf("the switch program has %v", names)
	}
	r, err := lawtrace.New()
	if err != nil {
		t.Fatal(err)
	}
	recording, err := r.Spec()
	if err != nil {
		t.Fatal(err)
	}
	if names, want := traceNames(recording), []string{
		"law_advances", "law_answered", "law_counts", "law_counts_other", "law_hears_mss", "law_looks", "law_must_pace", "law_opens", "law_orders",
		"law_records", "law_rests", "law_slot_comes", "law_slot_goes", "law_slot_taken", "law_turned", "law_unconcerned",
	}; !slices.Equal(names, want) {
		t.Errorf("the recording program has %v, want %v: the comparison sees nothing", names, want)
	}
	if _, err := r.Stop(); err != nil {
		t.Error(err)
	}
}

// traceNames returns the maps and functions of bpf/fairq/trace.h in a program, sorted.
func traceNames(spec *ebpf.CollectionSpec) []string {
	names := slices.Collect(maps.Keys(spec.Maps))
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			names = append(names, p.Instructions[i].Symbol(), p.Instructions[i].Reference())
		}
	}
	slices.Sort(names)
	return slices.Compact(slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, "law_") }))
}
