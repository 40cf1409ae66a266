package laws

import (
	"hash/fnv"

	"weir/experiment"
	"weir/sim/control"
	"weir/sim/network"
)

// NewMessenger returns the control plane of one controller law of a run. Its messages have the delay, jitter and loss of
// the file; without them they take half a round trip and none is lost. Messages of one sender arrive in order, as those
// of one connection to the bus do. Each law has random numbers of its own.
func NewMessenger(n *network.Network, r *experiment.Run, name string) (*control.Messenger, error) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	o := control.Options{Seed: r.Seed ^ int64(h.Sum64()), Delay: r.Config.RTT / 2, Ordered: true}
	if c := r.Config.Control; c != nil {
		o.Delay, o.Jitter, o.Loss = c.Delay, c.Jitter, c.Loss
	}
	return control.New(n.Queue, o)
}
