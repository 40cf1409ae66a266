//go:build !cgo

package laws

import (
	"weir/experiment"
	"weir/sim/network"
)

func putACDC(_ *network.Network, _ *experiment.Run, name string) error { return checkNative(name) }

func checkACDC(_ *experiment.Run, name string) error { return checkNative(name) }

// ACDCCounts is what AC/DC did at all hosts of a network so far.
type ACDCCounts struct{ Acks, Rewritten, Opened, Refused uint64 }

// CountACDC says that the network has no AC/DC.
func CountACDC(*network.Network) (ACDCCounts, bool) { return ACDCCounts{}, false }
