package channel

import "weir/openflow"

// multiparts are a question of each kind with its answer; one answer is in two parts, one question sets.
func multiparts() []exchange {
	flows := openflow.FlowStatsRequest{TableID: 2, OutPort: 3, OutGroup: 7, Cookie: 0x55, CookieMask: 0xff, Match: peerMatch()}
	port := func(n openflow.PortNo) openflow.PortStats {
		return openflow.PortStats{
			PortNo: n, RxPackets: 1, TxPackets: 2, RxBytes: 3, TxBytes: 4 << 40, RxDropped: 5, TxDropped: 6, RxErrors: 7, TxErrors: 8,
			RxFrameErr: 9, RxOverErr: 10, RxCRCErr: 11, Collisions: 12, DurationSec: 13, DurationNsec: 14,
		}
	}
	set := openflow.TableFeatures{peerTable(false)}
	return []exchange{
		multipart(openflow.MultipartDesc, nil, &openflow.DescReply{
			Manufacturer: "Weir", Hardware: "none", Software: "os-ken and Go", SerialNum: "1", Datapath: "a test",
		}),
		multipart(openflow.MultipartFlow, flows, openflow.FlowStatsReply{peerStats(), peerStats()}),
		multipart(openflow.MultipartAggregate, openflow.AggregateStatsRequest(flows), openflow.AggregateStatsReply{PacketCount: 1 << 35, ByteCount: 1 << 45, FlowCount: 12}),
		multipart(openflow.MultipartTable, nil, openflow.TableStatsReply{{TableID: 0, ActiveCount: 2, LookupCount: 1 << 34, MatchedCount: 5}, {TableID: 253}}),
		{&openflow.MultipartRequest{Type: openflow.MultipartPortStats, Body: openflow.PortStatsRequest{PortNo: openflow.PortAny}}, []openflow.Message{
			&openflow.MultipartReply{Type: openflow.MultipartPortStats, More: true, Body: openflow.PortStatsReply{port(1), port(2)}},
			&openflow.MultipartReply{Type: openflow.MultipartPortStats, Body: openflow.PortStatsReply{port(openflow.PortLocal)}},
		}},
		multipart(openflow.MultipartQueue, openflow.QueueStatsRequest{PortNo: 3, QueueID: 8}, openflow.QueueStatsReply{
			{PortNo: 3, QueueID: 8, TxBytes: 1 << 41, TxPackets: 2, TxErrors: 3, DurationSec: 4, DurationNsec: 5},
		}),
		multipart(openflow.MultipartGroup, openflow.GroupStatsRequest{GroupID: openflow.GroupAll}, openflow.GroupStatsReply{
			{GroupID: 7, RefCount: 1, PacketCount: 2, ByteCount: 3, DurationSec: 4, DurationNsec: 5, BucketStats: []openflow.BucketCounter{{PacketCount: 6, ByteCount: 7}, {PacketCount: 8, ByteCount: 9}}},
			{GroupID: 8},
		}),
		multipart(openflow.MultipartGroupDesc, nil, openflow.GroupDescReply{
			{Type: openflow.GroupTypeAll, GroupID: 1, Buckets: peerBuckets(openflow.GroupTypeAll)},
			{Type: openflow.GroupTypeSelect, GroupID: 2, Buckets: peerBuckets(openflow.GroupTypeSelect)},
			{Type: openflow.GroupTypeIndirect, GroupID: 3, Buckets: peerBuckets(openflow.GroupTypeIndirect)},
			{Type: openflow.GroupTypeFF, GroupID: 4, Buckets: peerBuckets(openflow.GroupTypeFF)},
		}),
		multipart(openflow.MultipartGroupFeatures, nil, openflow.GroupFeaturesReply{
			Types: 15, Capabilities: openflow.GroupSelectWeight | openflow.GroupChaining, MaxGroups: [4]uint32{1, 2, 3, 4}, Actions: [4]uint32{5, 6, 7, 8},
		}),
		multipart(openflow.MultipartMeter, openflow.MeterStatsRequest{MeterID: openflow.MeterAll}, openflow.MeterStatsReply{
			{MeterID: 5, FlowCount: 1, PacketInCount: 2, ByteInCount: 3, DurationSec: 4, DurationNsec: 5, BandStats: []openflow.BandStats{{PacketCount: 6, ByteCount: 7}}},
		}),
		multipart(openflow.MultipartMeterConfig, openflow.MeterConfigRequest{MeterID: 5}, openflow.MeterConfigReply{
			{Flags: openflow.MeterFlagPktps, MeterID: 5, Bands: peerBands()},
		}),
		multipart(openflow.MultipartMeterFeatures, nil, openflow.MeterFeaturesReply{MaxMeter: 100, BandTypes: 6, Capabilities: 15, MaxBands: 3, MaxColor: 8}),
		multipart(openflow.MultipartTableFeatures, openflow.TableFeatures{}, openflow.TableFeatures{peerTable(true), peerTable(false)}),
		multipart(openflow.MultipartTableFeatures, set, set),
		multipart(openflow.MultipartPortDesc, nil, openflow.PortDescReply{peerPort, {PortNo: openflow.PortLocal, Name: "br0"}}),
		multipart(openflow.MultipartExperimenter, openflow.MultipartExperiment{Experimenter: 0x4f4e4600, ExpType: 1870, Data: openflow.HexBytes("12345678")},
			openflow.MultipartExperiment{Experimenter: 0x4f4e4600, ExpType: 1870, Data: openflow.HexBytes("87654321")}),
	}
}

func multipart(kind openflow.MultipartType, ask, give openflow.MultipartBody) exchange {
	return one(&openflow.MultipartRequest{Type: kind, Body: ask}, &openflow.MultipartReply{Type: kind, Body: give})
}

func peerStats() openflow.FlowStats {
	flow := peerFlow()
	return openflow.FlowStats{
		TableID: 2, DurationSec: 3, DurationNsec: 4, Priority: 5, IdleTimeout: 6, HardTimeout: 7, Flags: openflow.FlowSendRemoved,
		Cookie: 8, PacketCount: 1 << 36, ByteCount: 1 << 46, Match: flow.Match, Instructions: flow.Instructions,
	}
}

// peerTable has a property of each type; fields only if they are asked for.
func peerTable(fields bool) openflow.TableFeature {
	f := openflow.TableFeature{TableID: 2, Name: "forward", MetadataMatch: 0xff, MetadataWrite: 0xff00, Config: 3, MaxEntries: 1 << 20}
	for typ := openflow.TableInstructions; typ <= openflow.TableApplySetFieldMiss; typ++ {
		p := openflow.TableProperty{Type: typ}
		switch {
		case typ <= openflow.TableInstructionsMiss:
			p.Instructions = []openflow.InstructionID{{Type: openflow.InstructionTypeGotoTable}, {Type: openflow.InstructionTypeMeter}}
		case typ <= openflow.TableNextTablesMiss:
			p.NextTables = []openflow.TableID{3, 4, 5}
		case typ <= openflow.TableApplyActionsMiss:
			p.Actions = []openflow.ActionID{{Type: openflow.ActionTypeOutput}, {Type: openflow.ActionTypeSetField}}
		case fields && typ != 9 && typ != 11: // which there are not
			p.Fields = []openflow.FieldHeader{
				{ID: openflow.FieldInPort, Length: 4}, {ID: openflow.FieldIPv4Dst, HasMask: true, Length: 8},
			}
		default:
			continue
		}
		f.Properties = append(f.Properties, p)
	}
	for _, typ := range []openflow.TablePropertyType{openflow.TableExperimenter, openflow.TableExperimenterMiss} {
		f.Properties = append(f.Properties, openflow.TableProperty{Type: typ, Experimenter: 0x4f4e4600, ExpType: 5, Data: openflow.HexBytes{1, 2, 3, 4, 5, 6, 7, 8}})
	}
	return f
}
