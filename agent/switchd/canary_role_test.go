package switchd

import (
	"errors"
	"testing"
	"time"

	"weir/datapath/reading"
)

// counted is a law that returns counters, or an error.
type counted struct {
	Running
	stats []reading.Stats
	err   error
}

func (c *counted) Stats(...string) ([]reading.Stats, error) { return c.stats, c.err }

// The time before a reading that fails counts for the next one.
func TestRole_ReadsCanariesAfterAFault(t *testing.T) {
	c := newCanary(50, &Rollback{})
	c.line, c.bdp = testLine, smoothedBDP{within: bdpTimeConstant, covers: bdpTimeConstant, follows: 5000, written: 5000}
	f := &counted{stats: []reading.Stats{{Port: "p", Flows: 1, QueueBytes: 200}}}
	r := &role{attached: &Attached{running: []Running{f}}, canaries: map[string]*canary{"p": c}}
	begun := time.Unix(1000, 0)
	for _, row := range []struct {
		after   time.Duration
		err     error
		follows float64
	}{{0, nil, 5000}, {time.Second, errFault, 5000}, {2 * time.Second, nil, 5100}} {
		f.err = row.err
		if err := r.readCanaries(begun.Add(row.after)); !errors.Is(err, row.err) || c.bdp.follows != row.follows {
			t.Errorf("after %v: a BDP of %g bytes, want %g: %v", row.after, c.bdp.follows, row.follows, err)
		}
	}
}
