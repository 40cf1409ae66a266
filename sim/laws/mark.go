//go:build cgo

package laws

import (
	"fmt"
	"math"

	"weir/datapath/native"
	"weir/experiment"
	"weir/sim/event"
	"weir/sim/network"
)

func checkNative(string) error { return nil }

// mark is `ecn` and `red`: datapath/core/mark.h at one port.
type mark struct {
	config  native.MarkConfig
	packets bool // threshold and queue are counted in packets; mark.h compares two numbers of one unit
}

// putMark gives each port of the switches the law, as the lab does. A threshold in packets is one in
// packets here; the lab counts 1500 bytes for each.
func putMark(n *network.Network, r *experiment.Run, name string) error {
	params, ok := r.Params[name].(experiment.MarkParams)
	if !ok {
		return fmt.Errorf("law %s: parameters are %T", name, r.Params[name])
	}
	if params.Threshold.N < 0 || params.Threshold.N > math.MaxUint32 {
		return fmt.Errorf("law %s: a threshold of %v is out of range", name, params.Threshold)
	}
	l := &mark{config: native.MarkConfig{ThresholdBytes: uint32(params.Threshold.N)}, packets: params.Threshold.Packets}
	if name == "red" {
		l.config.Action = 1
	}
	if params.NotECT == "drop" {
		l.config.NotECT = 1
	}
	for _, p := range n.SwitchPorts(r.At) {
		add(p, l)
	}
	return nil
}

// Packet asks mark_decide. Only a packet that finds nothing waiting is not asked about: 0 is at or under
// every threshold (mark.h), and the call is the dearest part of a hop.
func (l *mark) Packet(p *network.Port, pk *network.Packet, _ event.Time) bool {
	backlog := p.Backlog()
	if l.packets {
		backlog = p.BacklogPackets()
	}
	if backlog == 0 {
		return true
	}
	switch native.Mark(l.config, uint32(min(backlog, math.MaxUint32)), pk.ECN) {
	case native.MarkSetCE:
		pk.ECN = network.CE
	case native.MarkDropLaw, native.MarkDropNotECT:
		return false
	}
	return true
}
