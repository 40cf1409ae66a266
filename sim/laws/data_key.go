package laws

import "weir/sim/network"

// dataKey is a flow: the direction of its data.
type dataKey struct {
	src, dst         network.NodeID
	srcPort, dstPort uint16
}

func keyOfData(pk *network.Packet) dataKey {
	return dataKey{pk.Src(), pk.Dst(), pk.SrcPort(), pk.DstPort()}
}
