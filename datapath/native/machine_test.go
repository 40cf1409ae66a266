//go:build cgo

package native_test

import (
	"fmt"

	"weir/datapath/internal/corevec"
	"weir/datapath/internal/vector"
	"weir/datapath/native"
)

// machines run each law's vectors in native code.
var machines = func() map[string]func() vector.Machine {
	all := corevec.Machines(corevec.Run)
	all["fairq"] = func() vector.Machine { return &fairqMachine{} }
	all["window"] = func() vector.Machine { return &windowMachine{} }
	all["mark"] = func() vector.Machine { return &markMachine{} }
	return all
}()

type fairqMachine struct{ queue *native.FairQ }

func (m *fairqMachine) Begin(config, state vector.Fields) error {
	var c native.FairQConfig
	var s native.FairQState
	if err := config.Into(&c); err != nil {
		return err
	}
	if err := state.Into(&s); err != nil {
		return err
	}
	if m.queue != nil {
		m.queue.Close()
	}
	m.queue = native.NewFairQ(c, 0)
	m.queue.SetState(s)
	return nil
}

func (m *fairqMachine) Do(event string, args vector.Fields) (state vector.Fields, result uint64, err error) {
	now, bytes := args.Get("now_ns"), uint32(args.Get("bytes"))
	switch event {
	case "reset":
		m.queue.Reset(now)
	case "saw_mss":
		m.queue.SawMSS(bytes)
	case "flow_added":
		m.queue.FlowAdded(now)
	case "flow_removed":
		m.queue.FlowRemoved()
	case "sample":
		m.queue.Sample(now, bytes)
	case "packet_may_sample":
		if m.queue.PacketMaySample(now) {
			result = 1
		}
	case "empty_may_rest":
		if m.queue.EmptyMayRest(now) {
			result = 1
		}
	case "opening":
		result = m.queue.OpeningQ8(bytes)
	default:
		return nil, 0, fmt.Errorf("fairq knows no event %s", event)
	}
	return vector.Of(m.queue.State()), result, nil
}

type windowMachine struct{ edge native.WindowEdge }

func (m *windowMachine) Begin(_, state vector.Fields) error { return state.Into(&m.edge) }

func (m *windowMachine) Do(event string, args vector.Fields) (state vector.Fields, result uint64, err error) {
	switch event {
	case "rewrite":
		var a native.WindowAck
		if err := args.Into(&a); err != nil {
			return nil, 0, err
		}
		result = uint64(native.WindowRewrite(&a, &m.edge))
	case "floor":
		result = uint64(native.WindowFloor(uint32(args.Get("mss_option_bytes")), uint32(args.Get("gso_size_bytes"))))
	case "checksum":
		result = uint64(native.WindowChecksum(uint16(args.Get("check")), uint16(args.Get("old_word")), uint16(args.Get("new_word"))))
	default:
		return nil, 0, fmt.Errorf("window knows no event %s", event)
	}
	return vector.Of(m.edge), result, nil
}

type markMachine struct{ config native.MarkConfig }

func (m *markMachine) Begin(config, _ vector.Fields) error { return config.Into(&m.config) }

func (m *markMachine) Do(event string, args vector.Fields) (state vector.Fields, result uint64, err error) {
	if event != "decide" {
		return nil, 0, fmt.Errorf("mark knows no event %s", event)
	}
	return nil, uint64(native.Mark(m.config, uint32(args.Get("backlog_bytes")), uint8(args.Get("ecn")))), nil
}
