package laws

import (
	"fmt"

	"weir/datapath/native"
	"weir/experiment"
	"weir/sim/network"
)

// inC returns l, a law that the C of datapath/core decides. In a build without cgo it returns a law that is refused.
func inC(l Law) Law {
	if native.Built {
		return l
	}
	return refused()
}

// refused returns a law that a build without cgo refuses, because its decisions are C.
func refused() Law {
	check := func(_ *experiment.Run, name string) error {
		return fmt.Errorf("law %s is C (datapath/core) and this weir was built without cgo: build it with CGO_ENABLED=1 and a C compiler", name)
	}
	put := func(_ *network.Network, r *experiment.Run, name string) (Attached, error) { return nil, check(r, name) }
	return Law{Check: check, Put: put}
}
