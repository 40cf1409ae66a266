//go:build !cgo

package laws

import (
	"weir/experiment"
	"weir/experiment/result"
	"weir/sim/network"
)

func putFairQ(_ *network.Network, _ *experiment.Run, name string) error { return checkNative(name) }

func checkFairQ(_ *experiment.Run, name string) error { return checkNative(name) }

// FairQCounts is what FairQ did at all ports of a network so far.
type FairQCounts struct{ Acks, Rewritten, Seen, Unknown, Opened, Refused uint64 }

// CountFairQ says that no port has FairQ.
func CountFairQ(*network.Network) (FairQCounts, bool) { return FairQCounts{}, false }

// SampleFairQ says that the port has no FairQ.
func SampleFairQ(*network.Port) (result.LawSample, bool) { return result.LawSample{}, false }

// Close has nothing to free.
func Close(*network.Network) {}
