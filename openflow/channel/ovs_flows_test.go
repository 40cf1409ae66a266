package channel

import (
	"cmp"
	"net/netip"
	"slices"

	"weir/openflow"
)

// ovsMatches are matches of every field that Open vSwitch has, with masks where it takes them.
func ovsMatches() []openflow.Match {
	mac, macs := openflow.MAC{2, 0, 0, 0, 0, 9}, openflow.MAC{0xff, 0xff, 0, 0, 0, 0xff}
	ip, ips := netip.MustParseAddr("10.1.0.0"), netip.MustParseAddr("255.255.0.0")
	ip6, ip6s := netip.MustParseAddr("fd00::"), netip.MustParseAddr("ffff::")
	none, none4 := openflow.MAC{}, netip.Addr{}
	eth := openflow.EthType
	v4, v6 := eth(0x800), eth(0x86dd)
	return []openflow.Match{
		{openflow.InPort(1), openflow.EthDst(mac, none), openflow.EthSrc(mac, none), eth(0x88b5), openflow.Metadata(7, 0), openflow.TunnelID(9, 0)},
		{openflow.EthDst(openflow.MAC{2}, macs), openflow.EthSrc(openflow.MAC{2}, macs), openflow.Metadata(0x50, 0xf0), openflow.TunnelID(0x90, 0xf0)},
		{openflow.VLANVID(0x1064, 0), openflow.VLANPCP(5)}, {openflow.VLANVID(0x1000, 0x1000)},
		{v4, openflow.IPv4Src(ip, ips), openflow.IPv4Dst(ip, ips), openflow.IPDSCP(11), openflow.IPECN(3), openflow.IPProto(6), openflow.TCPSrc(80), openflow.TCPDst(81), openflow.TCPFlags(openflow.TCPSyn, openflow.TCPSyn|openflow.TCPAck)},
		{v4, openflow.IPProto(6), openflow.TCPFlags(openflow.TCPSyn, 0)},
		{v4, openflow.IPv4Dst(ip, none4), openflow.IPProto(17), openflow.UDPSrc(53), openflow.UDPDst(54)},
		{v4, openflow.IPProto(132), openflow.SCTPSrc(1), openflow.SCTPDst(2)},
		{v4, openflow.IPProto(1), openflow.ICMPv4Type(8), openflow.ICMPv4Code(1)},
		{eth(0x806), openflow.ARPOp(1), openflow.ARPSPA(ip, ips), openflow.ARPTPA(ip, ips), openflow.ARPSHA(mac, none), openflow.ARPTHA(openflow.MAC{2}, macs)},
		{v6, openflow.IPv6Src(ip6, ip6s), openflow.IPv6Dst(ip6, ip6s), openflow.IPv6FLabel(0x50, 0xf0), openflow.IPProto(6)},
		{v6, openflow.IPProto(58), openflow.ICMPv6Type(135), openflow.ICMPv6Code(0), openflow.IPv6NDTarget(ip6), openflow.IPv6NDSLL(mac)},
		{v6, openflow.IPProto(58), openflow.ICMPv6Type(136), openflow.ICMPv6Code(0), openflow.IPv6NDTLL(mac)},
		{eth(0x8847), openflow.MPLSLabel(100), openflow.MPLSTC(5), openflow.MPLSBoS(1)},
	}
}

// fields puts a flow in for each match, and finds it as it was.
func (k *ovsTalk) fields() {
	k.t.Helper()
	for i, match := range ovsMatches() {
		flow := &openflow.FlowMod{
			Cookie: uint64(100 + i), Priority: 5, IdleTimeout: 300, HardTimeout: 600, BufferID: openflow.NoBuffer, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny,
			Match: match, Instructions: openflow.Instructions{
				openflow.InstructionMeter{MeterID: 5}, openflow.InstructionApplyActions{Actions: openflow.Actions{openflow.ActionOutput{Port: 1}}},
				openflow.InstructionWriteActions{Actions: openflow.Actions{openflow.ActionGroup{GroupID: 11}}},
				openflow.InstructionWriteMetadata{Metadata: 5, Mask: 7}, openflow.InstructionGotoTable{TableID: 2},
			},
		}
		k.comesBack(flow)
	}
	for _, f := range []openflow.Field{openflow.PBBISID(7, 0), openflow.IPv6ExtHdr(1, 0), openflow.InPhyPort(1)} {
		match := openflow.Match{f}
		switch f.ID {
		case openflow.FieldPBBISID:
			match = openflow.Match{openflow.EthType(0x88e7), f}
		case openflow.FieldIPv6ExtHdr:
			match = openflow.Match{openflow.EthType(0x86dd), f}
		case openflow.FieldInPhyPort:
			match = openflow.Match{openflow.InPort(1), f}
		}
		k.refused("a match of "+f.String(), openflow.ErrorBadMatch, &openflow.FlowMod{
			BufferID: openflow.NoBuffer, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny, Match: match,
		})
	}
}

// comesBack puts a flow in and asks for it by its cookie.
func (k *ovsTalk) comesBack(flow *openflow.FlowMod) {
	k.t.Helper()
	k.apply(flow)
	all, _ := k.multipart(openflow.MultipartFlow, openflow.FlowStatsRequest{
		TableID: openflow.TableAll, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny, Cookie: flow.Cookie, CookieMask: ^uint64(0),
	}).(openflow.FlowStatsReply)
	if len(all) != 1 {
		k.t.Errorf("%s: %d flows came back", flow, len(all))
		return
	}
	got := &openflow.FlowMod{
		Cookie: all[0].Cookie, TableID: all[0].TableID, Priority: all[0].Priority, IdleTimeout: all[0].IdleTimeout, HardTimeout: all[0].HardTimeout,
		BufferID: openflow.NoBuffer, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny, Flags: all[0].Flags, Match: all[0].Match, Instructions: all[0].Instructions,
	}
	want := *flow
	want.Match = slices.Clone(flow.Match)
	for _, match := range []openflow.Match{want.Match, got.Match} { // the order says nothing
		slices.SortFunc(match, func(a, b openflow.Field) int { return cmp.Compare(a.ID, b.ID) })
	}
	equal(k.t, "a flow that came back", &want, got)
}

// ovsActions are all that Open vSwitch takes, in flows that allow them.
func ovsActions() []openflow.FlowMod {
	plain := func(typ openflow.ActionType) openflow.Action { return openflow.ActionPlain{Type: typ} }
	ip, mpls := openflow.Match{openflow.EthType(0x800)}, openflow.Match{openflow.EthType(0x8847)}
	var all []openflow.FlowMod
	for _, f := range []struct {
		match   openflow.Match
		actions openflow.Actions
	}{
		{ip, openflow.Actions{
			openflow.ActionSetField{Field: openflow.EthDst(openflow.MAC{2, 0, 0, 0, 0, 7}, openflow.MAC{})}, openflow.ActionSetField{Field: openflow.IPDSCP(11)},
			openflow.ActionSetTTL{TTL: 9}, plain(openflow.ActionTypeDecNwTTL), openflow.ActionSetQueue{QueueID: 1},
			openflow.ActionPush{Type: openflow.ActionTypePushVLAN, EtherType: 0x8100}, plain(openflow.ActionTypePopVLAN),
			openflow.ActionGroup{GroupID: 10}, openflow.ActionOutput{Port: openflow.PortController, MaxLen: 128},
		}},
		{mpls, openflow.Actions{
			openflow.ActionSetTTL{MPLS: true, TTL: 9}, plain(openflow.ActionTypeDecMPLSTTL), openflow.ActionPush{Type: openflow.ActionTypePushMPLS, EtherType: 0x8847},
			openflow.ActionPopMPLS{EtherType: 0x8847}, openflow.ActionOutput{Port: openflow.PortIn},
		}},
	} {
		all = append(all, openflow.FlowMod{
			Cookie: uint64(200 + len(all)), Priority: 4, BufferID: openflow.NoBuffer, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny,
			Flags: openflow.FlowSendRemoved, Match: f.match, Instructions: openflow.Instructions{openflow.InstructionApplyActions{Actions: f.actions}},
		})
	}
	return all
}

func (k *ovsTalk) actions() {
	k.t.Helper()
	for _, flow := range ovsActions() {
		k.comesBack(&flow)
	}
	cleared := &openflow.FlowMod{
		Cookie: 210, BufferID: openflow.NoBuffer, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny,
		Match: openflow.Match{openflow.EthType(0x88b6)}, Instructions: openflow.Instructions{openflow.InstructionClearActions{}},
	}
	k.comesBack(cleared)
	for _, a := range []openflow.Action{
		openflow.ActionPush{Type: openflow.ActionTypePushPBB, EtherType: 0x88e7}, openflow.ActionPlain{Type: openflow.ActionTypePopPBB},
		openflow.ActionPlain{Type: openflow.ActionTypeCopyTTLOut}, openflow.ActionPlain{Type: openflow.ActionTypeCopyTTLIn},
		openflow.ActionExperimenter{Experimenter: 0x77777777, Data: make([]byte, 8)},
	} {
		k.refused("the action "+a.String(), openflow.ErrorBadAction, &openflow.FlowMod{
			BufferID: openflow.NoBuffer, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny, Match: openflow.Match{openflow.EthType(0x800)},
			Instructions: openflow.Instructions{openflow.InstructionApplyActions{Actions: openflow.Actions{a}}},
		})
	}
}

// statistics asks for the kinds that no other part asks for.
func (k *ovsTalk) statistics() {
	k.t.Helper()
	if d, _ := k.multipart(openflow.MultipartDesc, nil).(*openflow.DescReply); d == nil || d.Hardware != "Open vSwitch" {
		k.t.Errorf("description: %+v", d)
	}
	n := uint32(len(ovsMatches()) + len(ovsActions()) + 1)
	sum, _ := k.multipart(openflow.MultipartAggregate, openflow.AggregateStatsRequest{
		TableID: openflow.TableAll, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny,
	}).(openflow.AggregateStatsReply)
	tables, _ := k.multipart(openflow.MultipartTable, nil).(openflow.TableStatsReply)
	if sum.FlowCount != n || len(tables) != 254 || tables[0].ActiveCount != n {
		k.t.Errorf("%d flows in all, %d tables, want %d and 254", sum.FlowCount, len(tables), n)
	}
	if f, _ := k.multipart(openflow.MultipartTableFeatures, openflow.TableFeatures{}).(openflow.TableFeatures); len(f) == 0 || len(f[0].Properties) < 10 {
		k.t.Errorf("features of tables: %+v", f)
	}
	if p, _ := k.multipart(openflow.MultipartPortStats, openflow.PortStatsRequest{PortNo: openflow.PortAny}).(openflow.PortStatsReply); len(p) != 2 {
		k.t.Errorf("counters of %d ports", len(p))
	}
	if q := k.multipart(openflow.MultipartQueue, openflow.QueueStatsRequest{PortNo: openflow.PortAny, QueueID: openflow.QueueAll}); q == nil {
		k.t.Error("no counters of queues")
	}
	request := openflow.HexBytes{ // onf_flow_monitor_request: id, flags (all), length of the match, port, a table that stays empty; the match
		0, 0, 0, 1, 0, 0x1f, 0, 4, 0xff, 0xff, 0xff, 0xff, 0xfd, 0, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0,
	}
	if e, _ := k.multipart(openflow.MultipartExperimenter, openflow.MultipartExperiment{Experimenter: experimenterONF, ExpType: 1870, Data: request}).(openflow.MultipartExperiment); e.ExpType != 1870 {
		k.t.Errorf("the flow monitor: %+v", e)
	}
}

// next waits for what comes unasked and is of that type.
func (k *ovsTalk) next(typ openflow.Type) openflow.Message {
	k.t.Helper()
	for {
		select {
		case m := <-k.handler.messages:
			if m.MessageType() == typ {
				return m
			}
		case <-k.ctx.Done():
			k.t.Fatalf("no %s comes", typ)
		}
	}
}

// events makes the switch say something by itself.
func (k *ovsTalk) events() {
	k.t.Helper()
	frame := openflow.HexBytes("\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x88\xb5 a frame, as long as the shortest that there may be......")
	k.apply(&openflow.PacketOut{
		BufferID: openflow.NoBuffer, InPort: 1, Actions: openflow.Actions{openflow.ActionOutput{Port: openflow.PortController, MaxLen: openflow.NoMaxLen}}, Data: frame,
	})
	in := k.next(openflow.TypePacketIn).(*openflow.PacketIn)
	if in.Reason != openflow.PacketInAction || string(in.Data) != string(frame) || !slices.Contains(in.Match, openflow.InPort(1)) {
		k.t.Errorf("packet-in: %s", in)
	}
	for _, config := range []openflow.PortConfig{openflow.PortNoFwd, 0} {
		k.apply(&openflow.PortMod{PortNo: 1, HwAddr: k.port().HwAddr, Config: config, Mask: openflow.PortNoFwd})
		if got := k.port().Config & openflow.PortNoFwd; got != config { // a controller gets no event for its own change
			k.t.Errorf("port configuration %s, want %s", got, config)
		}
	}
	for _, change := range []struct {
		args   []string
		reason openflow.PortReason
	}{
		{[]string{"add-port", "br0", "p2", "--", "set", "interface", "p2", "type=internal"}, openflow.PortAdd},
		{[]string{"del-port", "br0", "p2"}, openflow.PortDelete},
	} {
		k.v.vsctl(change.args...)
		status := k.next(openflow.TypePortStatus).(*openflow.PortStatus)
		for status.Reason == openflow.PortModify { // several events may follow as the switch reads the port
			status = k.next(openflow.TypePortStatus).(*openflow.PortStatus)
		}
		if status.Reason != change.reason || status.Desc.Name != "p2" {
			k.t.Errorf("%v: %s", change.args, status)
		}
	}
	first := ovsActions()[0]
	first.Command = openflow.FlowDeleteStrict
	k.apply(&first)
	gone := k.next(openflow.TypeFlowRemoved).(*openflow.FlowRemoved)
	want := &openflow.FlowRemoved{
		Cookie: first.Cookie, Priority: first.Priority, Reason: openflow.RemovedDelete, Match: first.Match,
		DurationSec: gone.DurationSec, DurationNsec: gone.DurationNsec,
	}
	equal(k.t, "flow removed", want, gone)
}

// port returns port 1 as it is.
func (k *ovsTalk) port() openflow.Port {
	k.t.Helper()
	ports, _ := k.multipart(openflow.MultipartPortDesc, nil).(openflow.PortDescReply)
	i := slices.IndexFunc(ports, func(p openflow.Port) bool { return p.PortNo == 1 })
	if i < 0 {
		k.t.Fatalf("ports: %+v", ports)
	}
	return ports[i]
}
