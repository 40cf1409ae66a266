//go:build cgo

package native_test

import (
	"testing"

	"weir/datapath/native"
)

// Adding or removing many flows at once equals adding or removing them one by one.
func TestSetFlows(t *testing.T) {
	for _, variant := range []native.Variant{native.VariantAlg1, native.VariantFairSwitch} {
		c := config()
		c.Variant = variant
		at, single := native.NewFairQ(c, 5), native.NewFairQ(c, 5)
		defer at.Close()
		defer single.Close()
		for _, q := range []*native.FairQ{at, single} {
			q.SawMSS(1448)
		}
		for i, n := range []uint32{3, 3, 17, 1, 0, 2} {
			now := uint64(1000 * (i + 1))
			at.SetFlows(now, n)
			for single.Flows() < n {
				single.FlowAdded(now)
			}
			for single.Flows() > n {
				single.FlowRemoved()
			}
			if a, b := at.State(), single.State(); a != b || at.Flows() != n || at.MSSBytes() != 1448 {
				t.Errorf("variant %d, %d flows: %+v, one by one %+v", variant, n, a, b)
			}
			at.Sample(now+500, 70_000)
			single.Sample(now+500, 70_000)
		}
	}
}
