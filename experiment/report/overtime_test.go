package report

import (
	"testing"

	"weir/experiment/result"
)

// The close-up is from the middle of the run. Bursts leave the queue empty for most of the time: then it is of the next burst.
func TestCloseUp(t *testing.T) {
	burst := func(from, to float64) result.QueueStep { return result.QueueStep{FromMs: from, ToMs: to, Bytes: 1500} }
	empty := func(from, to float64) result.QueueStep { return result.QueueStep{FromMs: from, ToMs: to} }
	for name, row := range map[string]struct {
		queues   [][]result.QueueStep
		from, to float64
	}{
		"no queue":               {nil, 10_000, 10_500},
		"always empty":           {[][]result.QueueStep{{empty(0, 20_000)}}, 10_000, 10_500},
		"full in the middle":     {[][]result.QueueStep{{burst(0, 20_000)}}, 10_000, 10_500},
		"a burst soon after":     {[][]result.QueueStep{{empty(0, 10_040), burst(10_040, 10_100)}}, 10_000, 10_500},
		"a burst later":          {[][]result.QueueStep{{burst(9500, 9600), empty(9600, 11_000), burst(11_000, 11_100)}}, 10_950, 11_450},
		"the first of two ports": {[][]result.QueueStep{{empty(0, 12_000), burst(12_000, 12_100)}, {empty(0, 11_000), burst(11_000, 11_100)}}, 10_950, 11_450},
		"at the end":             {[][]result.QueueStep{{empty(0, 19_990), burst(19_990, 20_000)}}, 19_500, 20_000},
		"over before":            {[][]result.QueueStep{{burst(0, 9000), empty(9000, 20_000)}}, 10_000, 10_500},
	} {
		if from, to := closeUp(row.queues, 20_000); from != row.from || to != row.to {
			t.Errorf("%s: %v to %v, want %v to %v", name, from, to, row.from, row.to)
		}
	}
}
