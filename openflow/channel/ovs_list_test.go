package channel

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"weir/openflow"
)

// TestOpenVSwitch_Every: every message of OpenFlow 1.3 between this package and Open vSwitch, both ways round, over TCP
// and TLS. The switch returns settings as they were made, and refuses the messages that it is known to refuse.
func TestOpenVSwitch_Every(t *testing.T) {
	v := newVSwitch(t)
	a := v.certificates()
	listen, err := ServerTLS(a.files("controller"), nil)
	if err != nil {
		t.Fatal(err)
	}
	dial, err := ClientTLS(a.files("controller"), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range []struct {
		name, target string
		config       Config
	}{
		{"TCP", "tcp:127.0.0.1:", Config{}}, {"TLS", "ssl:127.0.0.1:", Config{TLS: listen}},
		{"TCP, dialled", "ptcp:16653:127.0.0.1", Config{}}, {"TLS, dialled", "pssl:16654:127.0.0.1", Config{TLS: dial}},
	} {
		t.Run(way.name, func(t *testing.T) {
			h := newHeard()
			config := way.config
			config.Handler = h
			if way.target[0] == 'p' {
				v.vsctl("set-controller", "br0", way.target)
				v.dial("tcp4", "127.0.0.1:"+way.target[5:10], config)
			} else {
				v.vsctl("set-controller", "br0", way.target+v.serve(config))
			}
			select {
			case c := <-h.ups:
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				k := &ovsTalk{t: t, v: v, ctx: ctx, conn: c, handler: h, multiparts: map[openflow.MultipartType]bool{}}
				k.all()
			case <-time.After(oskenPatience):
				t.Fatalf("the switch does not come:\n%s", v.log())
			}
		})
	}
}

// ovsTalk is a conversation with Open vSwitch.
type ovsTalk struct {
	t          *testing.T
	v          *vswitch
	ctx        context.Context
	conn       *Conn
	handler    *heard
	multiparts map[openflow.MultipartType]bool // answered
}

func (k *ovsTalk) all() {
	k.session()
	k.groups()
	k.meters()
	k.fields()
	k.actions()
	k.statistics()
	k.events()
	k.refused("an instruction backwards", openflow.ErrorBadInstruction, &openflow.FlowMod{
		BufferID: openflow.NoBuffer, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny,
		Instructions: openflow.Instructions{openflow.InstructionGotoTable{}},
	})
	k.apply(emptyGroups(), emptyMeters(), emptyTables())
	k.seen()
}

// seen fails unless each type passed that this side sends, and each that the switch does.
func (k *ovsTalk) seen() {
	k.t.Helper()
	st := k.conn.Stats()
	for typ := openflow.TypeHello; typ <= openflow.TypeMeterMod; typ++ {
		// Errors, and answers to echoes that Open vSwitch does not ask for, are the switch's alone.
		if says(typ, true) && st.Out[typ] == 0 && typ != openflow.TypeError && typ != openflow.TypeEchoReply {
			k.t.Errorf("no %s was sent", typ)
		}
		if says(typ, false) && st.In[typ] == 0 && typ != openflow.TypeEchoRequest {
			k.t.Errorf("no %s came", typ)
		}
	}
	for kind := openflow.MultipartDesc; kind <= openflow.MultipartPortDesc; kind++ {
		if !k.multiparts[kind] {
			k.t.Errorf("no multipart %s was answered", kind)
		}
	}
	if !k.multiparts[openflow.MultipartExperimenter] {
		k.t.Error("no experimenter's multipart was answered")
	}
	if st.Undecodable+st.Strange+st.Unknown != 0 || k.conn.Err() != nil {
		k.t.Errorf("%+v, %v", st, k.conn.Err())
	}
}

func (k *ovsTalk) apply(changes ...openflow.Message) {
	k.t.Helper()
	if err := k.conn.Apply(k.ctx, changes...); err != nil {
		k.t.Errorf("%v: %v", changes, err)
	}
}

// refused is for what Open vSwitch does not take.
func (k *ovsTalk) refused(what string, typ openflow.ErrorType, m openflow.Message) {
	k.t.Helper()
	var refused *RemoteError
	if err := k.conn.Apply(k.ctx, m); !errors.As(err, &refused) || refused.Message.ErrorType != typ {
		k.t.Errorf("%s: %v, want an error of type %s", what, err, typ)
	}
}

func (k *ovsTalk) request(m openflow.Message) openflow.Message {
	k.t.Helper()
	got, err := k.conn.Request(k.ctx, m)
	if err != nil {
		k.t.Fatalf("%s: %v", m, err)
	}
	return got
}

// multipart returns the first part of an answer.
func (k *ovsTalk) multipart(kind openflow.MultipartType, body openflow.MultipartBody) openflow.MultipartBody {
	k.t.Helper()
	parts, err := k.conn.Multipart(k.ctx, &openflow.MultipartRequest{Type: kind, Body: body})
	if err != nil {
		k.t.Errorf("multipart %s: %v", kind, err)
		return nil
	}
	k.multiparts[kind] = true
	return parts[0].Body
}

func emptyTables() *openflow.FlowMod {
	return &openflow.FlowMod{
		TableID: openflow.TableAll, Command: openflow.FlowDelete, BufferID: openflow.NoBuffer, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny,
	}
}

func emptyGroups() *openflow.GroupMod {
	return &openflow.GroupMod{Command: openflow.GroupDelete, GroupID: openflow.GroupAll}
}

func emptyMeters() *openflow.MeterMod {
	return &openflow.MeterMod{Command: openflow.MeterDelete, MeterID: openflow.MeterAll}
}

func (k *ovsTalk) session() {
	k.t.Helper()
	generation := uint64(time.Now().UnixNano()) // the switch keeps the highest of all connections
	for _, role := range []openflow.Role{openflow.RoleSlave, openflow.RoleEqual, openflow.RoleMaster} {
		if err := k.conn.SetRole(k.ctx, role, generation); err != nil {
			k.t.Fatalf("role %s: %v", role, err)
		}
	}
	echo := k.request(&openflow.EchoRequest{Data: openflow.HexBytes("hello")})
	equal(k.t, "echo", &openflow.EchoReply{Data: openflow.HexBytes("hello")}, echo)
	if f := k.request(&openflow.FeaturesRequest{}).(*openflow.FeaturesReply); f.DatapathID != 0xaa {
		k.t.Errorf("features: %s", f)
	}
	k.apply(&openflow.SetConfig{Flags: openflow.FragDrop, MissSendLen: 200})
	equal(k.t, "configuration", &openflow.GetConfigReply{Flags: openflow.FragDrop, MissSendLen: 200}, k.request(&openflow.GetConfigRequest{}))
	masks := openflow.AsyncMasks{PacketIn: [2]uint32{7, 1}, PortStatus: [2]uint32{7, 7}, FlowRemoved: [2]uint32{15, 2}}
	k.apply(&openflow.SetAsync{Masks: masks}, &openflow.SetConfig{MissSendLen: openflow.NoMaxLen}) // 0: nothing unasked to who has dialled
	equal(k.t, "asynchronous configuration", &openflow.GetAsyncReply{Masks: masks}, k.request(&openflow.GetAsyncRequest{}))
	if q := k.request(&openflow.QueueGetConfigRequest{Port: 1}).(*openflow.QueueGetConfigReply); q.Port != 1 {
		k.t.Errorf("queues: %s", q)
	}
	table := k.request(&openflow.Experimenter{Experimenter: 0x2320, ExpType: 25}).(*openflow.Experimenter) // NXT_TLV_TABLE_REQUEST
	if table.Experimenter != 0x2320 || table.ExpType != 26 {
		k.t.Errorf("an experimenter's answer: %s", table)
	}
	k.apply(&openflow.TableMod{TableID: 0}, emptyTables(), emptyGroups(), emptyMeters())
}

// groups puts one of each type in, and asks for them.
func (k *ovsTalk) groups() {
	k.t.Helper()
	var want openflow.GroupDescReply
	for typ := openflow.GroupTypeAll; typ <= openflow.GroupTypeFF; typ++ {
		desc := openflow.GroupDesc{Type: typ, GroupID: openflow.GroupID(10 + typ), Buckets: []openflow.Bucket{
			{WatchPort: openflow.PortAny, WatchGroup: openflow.GroupAny, Actions: openflow.Actions{openflow.ActionOutput{Port: 1}}},
		}}
		switch typ {
		case openflow.GroupTypeSelect:
			desc.Buckets[0].Weight = 3
			desc.Buckets = append(desc.Buckets, openflow.Bucket{Weight: 1, WatchPort: openflow.PortAny, WatchGroup: openflow.GroupAny, Actions: openflow.Actions{openflow.ActionOutput{Port: openflow.PortLocal}}})
		case openflow.GroupTypeFF:
			desc.Buckets[0].WatchPort = 1
		}
		k.apply(&openflow.GroupMod{Type: desc.Type, GroupID: desc.GroupID, Buckets: desc.Buckets})
		want = append(want, desc)
	}
	got, _ := k.multipart(openflow.MultipartGroupDesc, nil).(openflow.GroupDescReply)
	slices.SortFunc(got, func(a, b openflow.GroupDesc) int { return int(a.GroupID) - int(b.GroupID) })
	reply := func(b openflow.MultipartBody) openflow.Message {
		return &openflow.MultipartReply{Type: openflow.MultipartGroupDesc, Body: b}
	}
	equal(k.t, "groups", reply(want), reply(got))
	if s, _ := k.multipart(openflow.MultipartGroup, openflow.GroupStatsRequest{GroupID: openflow.GroupAll}).(openflow.GroupStatsReply); len(s) != 4 {
		k.t.Errorf("counters of %d groups", len(s))
	}
	if f, _ := k.multipart(openflow.MultipartGroupFeatures, nil).(openflow.GroupFeaturesReply); f.Types != 15 {
		k.t.Errorf("groups: %+v", f)
	}
}

func (k *ovsTalk) meters() {
	k.t.Helper()
	m := &openflow.MeterMod{Flags: openflow.MeterFlagKbps | openflow.MeterFlagStats | 4, MeterID: 5, Bands: []openflow.Band{{Type: openflow.BandDrop, Rate: 1000, BurstSize: 100}}}
	k.apply(m)
	want := openflow.MeterConfigReply{{Flags: m.Flags, MeterID: 5, Bands: m.Bands}}
	got := k.multipart(openflow.MultipartMeterConfig, openflow.MeterConfigRequest{MeterID: 5})
	equal(k.t, "meter", &openflow.MultipartReply{Type: openflow.MultipartMeterConfig, Body: want}, &openflow.MultipartReply{Type: openflow.MultipartMeterConfig, Body: got})
	if s, _ := k.multipart(openflow.MultipartMeter, openflow.MeterStatsRequest{MeterID: openflow.MeterAll}).(openflow.MeterStatsReply); len(s) != 1 || s[0].MeterID != 5 {
		k.t.Errorf("counters of meters: %+v", s)
	}
	if f, _ := k.multipart(openflow.MultipartMeterFeatures, nil).(openflow.MeterFeaturesReply); f.BandTypes != 1<<openflow.BandDrop {
		k.t.Errorf("meters: %+v", f)
	}
	remark := *m
	remark.MeterID, remark.Bands = 6, []openflow.Band{{Type: openflow.BandDSCPRemark, Rate: 1000, PrecLevel: 1}}
	k.refused("a band that remarks", openflow.ErrorMeterModFailed, &remark)
}
