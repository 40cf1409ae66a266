package traffic_test

import (
	"testing"
	"time"

	"weir/experiment"
)

func TestBulkAndBurst(t *testing.T) {
	n := newPair(t, 100e6)
	out := run(t, n, config(time.Second,
		item(experiment.Traffic{Name: "elephants", Pattern: "bulk", Count: 2, Stop: ms(900)}),
		item(experiment.Traffic{Name: "mice", Data: "pull", Pattern: "burst", Size: 11500, Count: 5, Every: ms(100), Start: ms(200), Epochs: 4}),
	))
	for _, f := range out.Flows {
		t.Logf("%s %d.%d %v..%v %d done %v rto %d %v", f.Group, f.Mouse, f.Epoch, f.Start, f.End, f.Bytes, f.Done, f.Timeouts, f.Key)
	}
}
