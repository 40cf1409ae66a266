package switchd

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"weir/datapath/attach"
)

// A process that was asked to leave while it was busy stays if nobody asks any more: otherwise no process would have the switch.
func TestRun_AskedToLeaveNoLonger(t *testing.T) {
	for what, row := range map[string]struct {
		refusals int64 // heartbeats in a row that find that another process asks
		stays    bool
	}{
		"asked no longer": {1, true},
		"asked":           {2, false},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMachine(t, "p0")
			l := &marking{name: "marks"}
			c, err := New(TestLaw, l).Parse("", []byte("kind: Switch\nversion: 2\nmetrics: {listen: \"\"}\nmarks: {}\nports: [{match: p0, shape: 100Mbit}]\n"))
			if err != nil {
				t.Fatal(err)
			}
			var counted, sent atomic.Int64
			sentAgain := make(chan struct{})
			counted.Store(-1) // not yet
			l.heartbeat = func() error {
				if counted.Load() < 0 {
					return nil
				}
				switch n := counted.Add(1); {
				case n <= row.refusals:
					return attach.ErrTakenOver
				case sent.Add(1) == 3:
					close(sentAgain)
				}
				return nil
			}
			begun := make(chan struct{}, 1)
			c.Log = logBegun(begun)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- m.run(ctx, c) }()
			<-begun
			counted.Store(0)
			if row.stays {
				select {
				case <-sentAgain:
				case err := <-ended:
					t.Fatalf("it ends: %v", err)
				}
				cancel()
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if released := slices.Contains(l.calls, "release"); released != row.stays {
				t.Errorf("released at the end: %t; calls %q", released, l.calls)
			}
		})
	}
}
