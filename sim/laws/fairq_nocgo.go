//go:build !cgo

package laws

import (
	"weir/experiment"
	"weir/experiment/result"
	"weir/sim/network"
)

func putFairQ(_ *network.Network, _ *experiment.Run, name string) error { return checkNative(name) }

func checkFairQ(_ *experiment.Run, name string) error { return checkNative(name) }

// CountFairQ says that no port has FairQ.
func CountFairQ(*network.Network) (t experiment.FairQTally, has bool) { return t, false }

// SampleFairQ says that the port has no FairQ.
func SampleFairQ(*network.Port) (result.LawSample, bool) { return result.LawSample{}, false }

// Close has nothing to free.
func Close(*network.Network) {}
