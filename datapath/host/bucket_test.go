package host

import (
	"io/fs"
	"testing"

	"weir/datapath/core"
	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/vector"
	"weir/internal/testroot"
)

// bucketMachine is this package's arithmetic of core/bucket.h.
type bucketMachine struct{}

func (bucketMachine) Begin(_, _ vector.Fields) error { return nil }

func (bucketMachine) Do(event string, args vector.Fields) (state vector.Fields, result uint64, err error) {
	bps := args.Get("bps")
	switch event {
	case "burst":
		result = uint64(bucketBurst(bps))
	case "quantum":
		result = uint64(bucketQuantum(bps))
	case "limit":
		result = uint64(bucketLimit(bps))
	case "changes":
		if bucketChanges(args.Get("has_bps"), bps) {
			result = 1
		}
	case "class": // only the kernel chooses it
		if result = args.Get("relaxed"); bps != 0 && args.Get("limited") != 0 {
			result = args.Get("limited")
		}
	}
	return nil, result, nil
}

// The loader's arithmetic is that of the C, to the bit.
func TestBucket_Vectors(t *testing.T) {
	names, err := fs.Glob(core.Vectors, "testdata/bucket*.vec")
	if err != nil || len(names) != 2 {
		t.Fatalf("vectors %v, %v", names, err)
	}
	for _, name := range names {
		text, err := core.Vectors.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := vector.Parse(name, text)
		if err != nil {
			t.Fatal(err)
		}
		checked, wrong, err := f.Run(bucketMachine{})
		if err != nil || len(wrong) != 0 || checked < 10 {
			t.Errorf("%s: %d checked, wrong %v, %v", name, checked, wrong, err)
		}
	}
}

// The verifier walks few instructions.
func TestPrograms_AreCheapToVerify(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	var p hostPrograms
	spec, err := loadHost()
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.LoadAndAssign(&p, nil); err != nil {
		t.Fatalf("%+v", err)
	}
	defer p.Close()
	bpftest.CheckVerified(t, "VM's port", p.WeirHostVm)
	bpftest.CheckVerified(t, "uplink", p.WeirHostUp)
}
