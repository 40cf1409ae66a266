package fairq_test

import (
	"errors"
	"testing"
	"time"

	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// The right edges granted before must be known to be respected. So avoid can follow live on avoid only, as the
// programs have it, and edge mode has allow whatever is configured.
func TestFairQChange_AvoidIsNotLive(t *testing.T) {
	p := newRwndPath(t, testnet.PathOptions{NoIPv6: true})
	on := fairq.EdgeMode{Interval: fairq.EdgeInterval}
	allow, avoid := fairq.Config{}, fairq.Config{Shrink: fairq.ShrinkAvoid}
	allowEdge, avoidEdge := fairq.Config{Edge: on}, fairq.Config{Shrink: fairq.ShrinkAvoid, Edge: on}
	for _, r := range []struct {
		name     string
		from, to fairq.Config
		live     bool
	}{
		{"allow to avoid", allow, avoid, false},
		{"avoid to allow", avoid, allow, true},
		{"avoid with the edge to avoid without", avoidEdge, avoid, false},
		{"allow with the edge to avoid without", allowEdge, avoid, false},
		{"avoid to avoid with the edge", avoid, avoidEdge, true},
		{"allow to avoid, both with the edge", allowEdge, avoidEdge, true},
		{"avoid to allow, and off the edge", avoidEdge, allow, true},
		{"VLANs separate to ignored", allow, fairq.Config{IgnoreVLANs: true}, false},
		{"VLANs ignored to separate", fairq.Config{IgnoreVLANs: true}, allow, false},
	} {
		t.Run(r.name, func(t *testing.T) {
			r.from.Lease = time.Hour
			f, err := fairq.Attach([]fairq.Port{{PortRef: p.Port, Law: limitedTo(30_000)}}, r.from)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			undo, err := f.Change(r.to)
			switch {
			case !r.live && !errors.Is(err, fairq.ErrNotLive):
				t.Errorf("error %v, want %v", err, fairq.ErrNotLive)
			case r.live && err != nil:
				t.Error(err)
			case r.live:
				if err := undo(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
