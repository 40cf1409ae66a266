package experiment

import (
	"reflect"
	"testing"

	"weir/law"
)

// Times and rates of a law are scaled at any depth; the law's own configuration is not changed.
func TestScaleParams_GoesDeep(t *testing.T) {
	type part struct {
		Rate law.Rate
		Size law.Bytes
	}
	type params struct {
		Wait  law.Duration
		Table map[string]law.Rate
		List  []part
		Limit law.Limit
		None  map[string]law.Rate
	}
	of := func(k int64) *params {
		return &params{
			Wait: law.Duration(10 * k), Table: map[string]law.Rate{"a": law.Rate(100 / k)}, List: []part{{law.Rate(40 / k), 7}},
			Limit: law.Limit{N: 3, Packets: true},
		}
	}
	p := of(1)
	if got, want := scaleParams(p, 4), *of(4); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if !reflect.DeepEqual(p, of(1)) {
		t.Errorf("the original has changed: %+v", p)
	}
}
