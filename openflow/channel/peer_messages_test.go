package channel

import (
	"cmp"
	"slices"

	"weir/openflow"
)

// exchange is what a controller sends, nil if nothing, and what its switch sends then.
type exchange struct {
	ask  openflow.Message
	give []openflow.Message
}

// exchanges lists all messages of OpenFlow 1.3 except hello and features, with a value in each field, as far as os-ken can
// write and read them.
func exchanges() []exchange {
	return slices.Concat(sessionExchanges(), changeExchanges(), multiparts(), unasked())
}

func one(ask, give openflow.Message) exchange { return exchange{ask, []openflow.Message{give}} }

func sessionExchanges() []exchange {
	masks := openflow.AsyncMasks{PacketIn: [2]uint32{7, 1}, PortStatus: [2]uint32{6, 2}, FlowRemoved: [2]uint32{15, 3}}
	refusal := &openflow.ErrorMessage{ErrorType: 1, Code: 6, Data: openflow.HexBytes{4, 20, 0, 8, 0, 0, 0, 9}} // BAD_REQUEST, BAD_LEN
	return []exchange{
		one(&openflow.RoleRequest{Role: openflow.RoleSlave, GenerationID: 1 << 40}, &openflow.RoleReply{Role: openflow.RoleSlave, GenerationID: 1 << 40}),
		one(&openflow.RoleRequest{Role: openflow.RoleEqual}, &openflow.RoleReply{Role: openflow.RoleEqual, GenerationID: 1 << 40}),
		one(&openflow.RoleRequest{Role: openflow.RoleMaster, GenerationID: 1<<40 + 1}, &openflow.RoleReply{Role: openflow.RoleMaster, GenerationID: 1<<40 + 1}),
		one(&openflow.EchoRequest{Data: openflow.HexBytes("from the controller")}, &openflow.EchoReply{Data: openflow.HexBytes("from the controller")}),
		{ask: &openflow.EchoReply{Data: openflow.HexBytes("unasked")}},
		one(&openflow.FeaturesRequest{}, peerFeatures),
		one(&openflow.GetConfigRequest{}, &openflow.GetConfigReply{Flags: openflow.FragReasm, MissSendLen: 0x1234}),
		{ask: &openflow.SetConfig{Flags: openflow.FragDrop, MissSendLen: 256}},
		one(&openflow.GetAsyncRequest{}, &openflow.GetAsyncReply{Masks: masks}),
		{ask: &openflow.SetAsync{Masks: masks}},
		one(&openflow.BarrierRequest{}, &openflow.BarrierReply{}),
		one(&openflow.BarrierRequest{}, refusal),
		{ask: refusal},
		one(&openflow.QueueGetConfigRequest{Port: 3}, &openflow.QueueGetConfigReply{Port: 3, Queues: []openflow.PacketQueue{
			{QueueID: 8, Port: 3, Properties: []openflow.QueueProperty{
				{Property: openflow.QueueMinRate, Rate: 100}, {Property: openflow.QueueMaxRate, Rate: 500},
			}},
			{QueueID: 9, Port: 3},
		}}),
		one(&openflow.Experimenter{Experimenter: 0x2320, ExpType: 24, Data: openflow.HexBytes{1, 2, 3, 4}},
			&openflow.Experimenter{Experimenter: 0x2320, ExpType: 25, Data: openflow.HexBytes{5, 6, 7, 8}}),
	}
}

var peerFeatures = &openflow.FeaturesReply{DatapathID: 0x0102030405060708, Buffers: 256, Tables: 254, Capabilities: 0x14f}

var peerPort = openflow.Port{
	PortNo: 3, HwAddr: openflow.MAC{2, 0, 0, 0, 0, 3}, Name: "eth3", Config: openflow.PortNoFwd, State: openflow.PortBlocked,
	Curr: 0x840, Advertised: 0x820, Supported: 0x87f, Peer: 0x810, CurrSpeed: 10_000_000, MaxSpeed: 40_000_000,
}

// changeExchanges are for a confirmed MASTER.
func changeExchanges() []exchange {
	frame := openflow.HexBytes("\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x88\xb5 a frame")
	all := []openflow.Message{
		&openflow.PacketOut{BufferID: openflow.NoBuffer, InPort: openflow.PortController, Actions: openflow.Actions{openflow.ActionOutput{Port: 2, MaxLen: 7}}, Data: frame},
		&openflow.PacketOut{BufferID: 12, InPort: 1, Actions: everyAction()},
		&openflow.PortMod{PortNo: 3, HwAddr: peerPort.HwAddr, Config: openflow.PortDown, Mask: openflow.PortDown | openflow.PortNoFwd, Advertise: 0x820},
		&openflow.TableMod{TableID: 4, Config: 3},
		&openflow.MeterMod{Command: openflow.MeterAdd, Flags: openflow.MeterFlagKbps | openflow.MeterFlagStats, MeterID: 5, Bands: peerBands()},
		&openflow.MeterMod{Command: openflow.MeterDelete, Flags: openflow.MeterFlagKbps, MeterID: openflow.MeterAll},
	}
	for typ := openflow.GroupTypeAll; typ <= openflow.GroupTypeFF; typ++ {
		for command := openflow.GroupAdd; command <= openflow.GroupDelete; command++ {
			all = append(all, &openflow.GroupMod{Command: command, Type: typ, GroupID: 7, Buckets: peerBuckets(typ)})
		}
	}
	fields := openflow.Fields()
	slices.SortFunc(fields, func(a, b openflow.FieldID) int { // os-ken writes them in this order
		return cmp.Or(cmp.Compare(a.Class(), b.Class()), cmp.Compare(a.Number(), b.Number()))
	})
	for chunk := range slices.Chunk(fields, 6) {
		for _, masked := range []bool{false, true} {
			flow := peerFlow()
			flow.Match = matchOf(chunk, masked)
			all = append(all, flow)
		}
	}
	var list []exchange
	for _, m := range all {
		list = append(list, exchange{ask: m})
	}
	return list
}

// peerFlow has something in each field, and every instruction that os-ken knows.
func peerFlow() *openflow.FlowMod {
	return &openflow.FlowMod{
		Cookie: 0x1122334455667788, CookieMask: 0xff00ff00ff00ff00, TableID: 2, Command: openflow.FlowModify, IdleTimeout: 10,
		HardTimeout: 20, Priority: 30, BufferID: 40, OutPort: 50, OutGroup: 60, Flags: openflow.FlowSendRemoved | openflow.FlowResetCounts,
		Match: peerMatch(),
		Instructions: openflow.Instructions{
			openflow.InstructionMeter{MeterID: 5}, openflow.InstructionApplyActions{Actions: everyAction()}, openflow.InstructionClearActions{},
			openflow.InstructionWriteActions{Actions: openflow.Actions{openflow.ActionGroup{GroupID: 7}}},
			openflow.InstructionWriteMetadata{Metadata: 0x55, Mask: 0xff}, openflow.InstructionGotoTable{TableID: 3},
		},
	}
}

func peerMatch() openflow.Match {
	return openflow.Match{
		openflow.InPort(3), openflow.EthType(0x800), openflow.VLANVID(0x1044, 0x1fcf), openflow.IPProto(6),
		openflow.TCPFlags(openflow.TCPSyn, openflow.TCPSyn|openflow.TCPAck),
	}
}

// matchOf returns each field a value of its own, and a mask where it may have one and that is asked for.
func matchOf(ids []openflow.FieldID, masked bool) openflow.Match {
	var match openflow.Match
	for _, id := range ids {
		value, mask := make([]byte, id.Bytes()), make([]byte, id.Bytes())
		for i := range value {
			value[i], mask[i] = byte(0x51+i), byte(0xf7-i)
			if above := (len(value)-i)*8 - id.Bits(); above > 0 {
				value[i] &= 0xff >> above
				mask[i] &= 0xff >> above
			}
			if masked && id.CanMask() {
				value[i] &= mask[i]
			}
		}
		if !masked || !id.CanMask() {
			mask = nil
		}
		f, err := openflow.NewField(id, value, mask)
		if err != nil {
			panic(err) // a list that is wrong
		}
		match = append(match, f)
	}
	return match
}

func everyAction() openflow.Actions {
	return openflow.Actions{
		openflow.ActionOutput{Port: openflow.PortController, MaxLen: 128}, openflow.ActionPlain{Type: openflow.ActionTypeCopyTTLOut},
		openflow.ActionPlain{Type: openflow.ActionTypeCopyTTLIn}, openflow.ActionSetTTL{MPLS: true, TTL: 63},
		openflow.ActionPlain{Type: openflow.ActionTypeDecMPLSTTL}, openflow.ActionPush{Type: openflow.ActionTypePushVLAN, EtherType: 0x8100},
		openflow.ActionPlain{Type: openflow.ActionTypePopVLAN}, openflow.ActionPush{Type: openflow.ActionTypePushMPLS, EtherType: 0x8847},
		openflow.ActionPopMPLS{EtherType: 0x800}, openflow.ActionSetQueue{QueueID: 9}, openflow.ActionGroup{GroupID: 7},
		openflow.ActionSetTTL{TTL: 62}, openflow.ActionPlain{Type: openflow.ActionTypeDecNwTTL},
		openflow.ActionSetField{Field: openflow.EthDst(openflow.MAC{2, 0, 0, 0, 0, 9}, openflow.MAC{})},
		openflow.ActionSetField{Field: openflow.IPDSCP(11)},
		openflow.ActionPush{Type: openflow.ActionTypePushPBB, EtherType: 0x88e7}, openflow.ActionPlain{Type: openflow.ActionTypePopPBB},
		openflow.ActionExperimenter{Experimenter: 0x4f4e4600, Data: openflow.HexBytes{1, 2, 3, 4, 5, 6, 7, 8}},
	}
}

func peerBands() []openflow.Band {
	return []openflow.Band{
		{Type: openflow.BandDrop, Rate: 1000, BurstSize: 100}, {Type: openflow.BandDSCPRemark, Rate: 2000, BurstSize: 200, PrecLevel: 1},
		{Type: openflow.BandExperimenter, Rate: 3000, BurstSize: 300, Experimenter: 0x4f4e4600},
	}
}

func peerBuckets(typ openflow.GroupType) []openflow.Bucket {
	list := []openflow.Bucket{
		{WatchPort: openflow.PortAny, WatchGroup: openflow.GroupAny, Actions: openflow.Actions{openflow.ActionOutput{Port: 1}}},
		{WatchPort: openflow.PortAny, WatchGroup: openflow.GroupAny, Actions: openflow.Actions{openflow.ActionSetQueue{QueueID: 1}, openflow.ActionOutput{Port: 2}}},
	}
	switch typ {
	case openflow.GroupTypeSelect:
		list[0].Weight, list[1].Weight = 3, 1
	case openflow.GroupTypeIndirect:
		list = list[:1]
	case openflow.GroupTypeFF:
		list[0].WatchPort, list[1].WatchPort = 1, 2
	}
	return list
}

// unasked lists the messages that a switch sends without a request. The controller answers an echo request.
func unasked() []exchange {
	in := &openflow.PacketIn{
		BufferID: 17, TotalLen: 1500, Reason: openflow.PacketInAction, TableID: 2, Cookie: 0x99, Match: peerMatch(),
		Data: openflow.HexBytes("the beginning of a frame"),
	}
	removed := &openflow.FlowRemoved{
		Cookie: 0x98, Priority: 30, Reason: openflow.RemovedHardTimeout, TableID: 2, DurationSec: 20, DurationNsec: 500,
		IdleTimeout: 10, HardTimeout: 20, PacketCount: 1 << 33, ByteCount: 1 << 44, Match: peerMatch(),
	}
	list := []openflow.Message{
		in, removed, &openflow.EchoRequest{Data: openflow.HexBytes("from the switch")},
		&openflow.EchoReply{Data: openflow.HexBytes("unasked")},
		&openflow.ErrorMessage{ErrorType: 5, Code: 1, Data: openflow.HexBytes{4, 14, 0, 56, 0, 0, 0, 9}}, // FLOW_MOD_FAILED, TABLE_FULL
		&openflow.Experimenter{Experimenter: 0x4f4e4600, ExpType: 77, Data: openflow.HexBytes("of its own accord")},
	}
	for reason := openflow.PortAdd; reason <= openflow.PortModify; reason++ {
		list = append(list, &openflow.PortStatus{Reason: reason, Desc: peerPort})
	}
	var all []exchange
	for _, m := range list {
		all = append(all, exchange{give: []openflow.Message{m}})
	}
	return all
}
