//go:build !cgo

package laws

import (
	"fmt"

	"weir/experiment"
	"weir/sim/network"
)

// checkNative refuses the laws that are C.
func checkNative(name string) error {
	return fmt.Errorf("law %s is C (datapath/core) and this weir was built without cgo: build it with CGO_ENABLED=1 and a C compiler", name)
}

func putMark(_ *network.Network, _ *experiment.Run, name string) error { return checkNative(name) }
