package experiment

import (
	"encoding/json"
	"slices"
	"testing"

	"weir/law/acdc"
	"weir/law/fairq"
	"weir/law/gcc"
	"weir/law/hygenicc"
	"weir/law/mark"
	"weir/law/sed"
	"weir/law/sicc"
)

// Every law's defaults are within the ranges of its own fields, and every field has a unit or a range that the
// schema knows.
func TestLawDefaultsAreAllowed(t *testing.T) {
	for _, l := range testLaws.list {
		text, err := json.Marshal(l.Params())
		if err != nil {
			t.Fatal(err)
		}
		var values map[string]any
		if err := json.Unmarshal(text, &values); err != nil {
			t.Fatal(err)
		}
		if err := l.schema().Validate(values); err != nil {
			t.Errorf("%s: %v", l.Name, err)
		}
		fields := l.fields()
		if l.Name == "fairq" {
			for _, later := range []string{"fairswitch", "start", "promises", "credits", "hold_requests", "repair_losses", "longest_wait"} {
				values[later] = false // not written when false: runs stored before this field keep their names
			}
		}
		if len(fields) != len(values) || slices.Contains(fields, "") {
			t.Errorf("%s has fields %v and writes %s", l.Name, fields, text)
		}
		for _, f := range fields {
			if s := l.schema().Properties[f]; s == nil || s.Description == "" {
				t.Errorf("%s.%s is not described", l.Name, f)
			}
		}
	}
}

// The papers' symbols have the papers' values.
func TestLawDefaultsAreThePapers(t *testing.T) {
	fq, si, gc, hy, se := fairq.Default(), sicc.Default(), gcc.Default(), hygenicc.Default(), sed.Default()
	for what, same := range map[string]bool{
		"fairq T = 50 us":           fq.Interval.String() == "50us",
		"fairq M = 10":              fq.Updates == 10,
		"fairq alpha = 0.2":         fq.TargetFraction == 0.2,
		"fairq slow start":          fq.Aggregate, // FQ-11: the default of core/fairq/fairq.h
		"fairq 1 s without data":    fq.Idle.String() == "1s",
		"sicc T = 1 ms":             si.Interval.String() == "1ms",
		"sicc alpha1 = 0.2":         si.OffFraction == 0.2,
		"sicc alpha2 = 1":           si.OnFraction == 1,
		"sicc DM = 15 ms":           si.MouseDuration.String() == "15ms",
		"sicc hold = 4 ms":          si.MinHold.String() == "4ms",
		"sicc queue weight 3/4":     si.QueueWeight == 0.75,
		"sicc timeout 1 s":          si.Lease.String() == "1s",
		"gcc T_i = 5 ms":            gc.Interval.String() == "5ms",
		"gcc Min_Rate = 10 Mbit":    gc.MinRate.String() == "10Mbit",
		"gcc 1.3 Mbit/s per ms":     int64(gc.Increase)*1e6/int64(gc.Period) == 1.3e6,
		"gcc 1 s inactivity":        gc.Inactivity.String() == "1s",
		"hygenicc 500 us":           hy.Interval.String() == "500us",
		"hygenicc 5 Mbit a mark":    hy.Decrease.String() == "5Mbit",
		"sed K = 30 packets":        se.Threshold.String() == "30pkt",
		"sed base_win = 1 MSS":      se.BaseWindow == 1460,
		"sed recovers at K/2":       2*se.Recover.N == se.Threshold.N,
		"acdc g = 1/16, as DCTCP":   acdc.Spec().Params().(*acdc.Params).Gain == 1.0/16,
		"ecn passes Not-ECT":        mark.ECNSpec().Params().(*mark.Params).NotECT == "pass",
		"red drops it, as all else": mark.REDSpec().Params().(*mark.Params).NotECT == "drop",
	} {
		if !same {
			t.Errorf("not so: %s", what)
		}
	}
}
