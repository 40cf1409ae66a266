package experiment

import (
	"encoding/json"
	"slices"
	"testing"
)

// Every law's defaults are within the ranges of its own fields, and every field has a unit or a
// range that the schema knows.
func TestLawDefaultsAreAllowed(t *testing.T) {
	for _, l := range Laws() {
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
			values["fairswitch"] = false // not written where false: runs that were stored before it keep their names
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

// The symbols of the papers have the values that the papers give them.
func TestLawDefaultsAreThePapers(t *testing.T) {
	fairq, sicc, gcc, hygenicc, sed := newFairQ(), newSICC(), newGCC(), newHyGenICC(), newSED()
	for what, same := range map[string]bool{
		"fairq T = 50 us":           fairq.Interval.String() == "50us",
		"fairq M = 10":              fairq.Updates == 10,
		"fairq alpha = 0.2":         fairq.TargetFraction == 0.2,
		"fairq slow start":          fairq.Aggregate, // FQ-11: as core/fairq.h's default
		"fairq 1 s without data":    fairq.Idle.String() == "1s",
		"sicc T = 1 ms":             sicc.Interval.String() == "1ms",
		"sicc alpha1 = 0.2":         sicc.OffFraction == 0.2,
		"sicc alpha2 = 1":           sicc.OnFraction == 1,
		"sicc DM = 15 ms":           sicc.MouseDuration.String() == "15ms",
		"sicc hold = 4 ms":          sicc.MinHold.String() == "4ms",
		"sicc queue weight 3/4":     sicc.QueueWeight == 0.75,
		"sicc timeout 1 s":          sicc.Lease.String() == "1s",
		"gcc T_i = 5 ms":            gcc.Interval.String() == "5ms",
		"gcc Min_Rate = 10 Mbit":    gcc.MinRate.String() == "10Mbit",
		"gcc 1.3 Mbit/s per ms":     int64(gcc.Increase)*1e6/int64(gcc.Period) == 1.3e6,
		"gcc 1 s inactivity":        gcc.Inactivity.String() == "1s",
		"hygenicc 500 us":           hygenicc.Interval.String() == "500us",
		"hygenicc 5 Mbit a mark":    hygenicc.Decrease.String() == "5Mbit",
		"sed K = 30 packets":        sed.Threshold.String() == "30pkt",
		"sed base_win = 1 MSS":      sed.BaseWindow == 1460,
		"sed recovers at K/2":       2*sed.Recover.N == sed.Threshold.N,
		"acdc g = 1/16, as DCTCP":   Laws()[4].Params().(*ACDCParams).Gain == 1.0/16,
		"ecn passes Not-ECT":        Laws()[2].Params().(*MarkParams).NotECT == "pass",
		"red drops it, as all else": Laws()[1].Params().(*MarkParams).NotECT == "drop",
	} {
		if !same {
			t.Errorf("not so: %s", what)
		}
	}
}
