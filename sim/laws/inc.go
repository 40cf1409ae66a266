package laws

import (
	"fmt"

	"weir/datapath/native"
	"weir/experiment"
	"weir/sim/network"
)

// inC is l, whose decisions are C. In a build without cgo it is a law that is refused.
func inC(l Law) Law {
	if native.Built {
		return l
	}
	return refused()
}

// refused is a law that is C, in a build without cgo.
func refused() Law {
	check := func(_ *experiment.Run, name string) error {
		return fmt.Errorf("law %s is C (datapath/core) and this weir was built without cgo: build it with CGO_ENABLED=1 and a C compiler", name)
	}
	put := func(_ *network.Network, r *experiment.Run, name string) (AtWork, error) { return nil, check(r, name) }
	return Law{Check: check, Put: put}
}
