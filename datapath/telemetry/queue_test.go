package telemetry

import (
	"testing"

	"weir/datapath/attach"
)

// A port whose device goes while it is added is not read again: later readings have no error.
func TestAddQueue_DeviceGone(t *testing.T) {
	tel := &Telemetry{}
	defer func() {
		for _, q := range tel.queues {
			_ = q.close()
		}
	}()
	for _, what := range []string{"the first port of a namespace", "another port"} {
		gone := &port{Port: Port{PortRef: attach.PortRef{Name: "gone", Ifindex: 1 << 30}}}
		if err := tel.addQueue(gone); err == nil {
			t.Fatalf("%s: no error for a device that is not there", what)
		}
		if err := tel.readQueues(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
