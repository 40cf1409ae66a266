package controller

import (
	"slices"
	"strings"
	"testing"

	"weir/law/fabric"
	"weir/openflow"
)

// onTheWire is what a message is after it was written and read again.
func onTheWire[M openflow.Message](t *testing.T, m M) M {
	t.Helper()
	b, err := openflow.Append(nil, 1, m)
	if err != nil {
		t.Fatal(err)
	}
	_, got, err := openflow.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	return got.(M)
}

// Each form of flow that the law makes is the same when a switch gives it back: what is found on a switch
// that joins is compared with what should be there.
func TestFlowsComeBackAsTheyWere(t *testing.T) {
	mac := fabric.MAC{2, 0, 0, 0, 0, 7}
	tuple := fabric.Tuple{Proto: 6, Src: fabric.IPv4{10, 0, 1, 1}, Dst: fabric.IPv4{10, 0, 2, 1}, SrcPort: 1000, DstPort: 80}
	udp := tuple
	udp.Proto = 17
	for _, f := range []fabric.Flow{
		{FlowKey: fabric.FlowKey{Priority: 900, Match: fabric.Match{EthType: 0x88cc}}, Kind: fabric.Probe, Do: fabric.Do{Meter: 0x5701}},
		{FlowKey: fabric.FlowKey{Priority: 500, Match: fabric.Match{EthType: 0x0806, EthDst: fabric.Broadcast}}, Kind: fabric.ARP, Do: fabric.Do{Meter: 0x5702}},
		{FlowKey: fabric.FlowKey{Priority: 301, Match: fabric.Match{EthType: 0x0800, TCPFlag: 2}}, Kind: fabric.SYN, Do: fabric.Do{Meter: 0x5703, Goto: 1}},
		{FlowKey: fabric.FlowKey{Priority: 700, Match: fabric.Match{InPort: 8}}, Kind: fabric.Link, Do: fabric.Do{Goto: 2}},
		{FlowKey: fabric.FlowKey{Table: 1, Priority: 100, Match: fabric.Match{InPort: 3, EthSrc: mac}}, Kind: fabric.Source, Do: fabric.Do{Goto: 2}, Idle: 300},
		{FlowKey: fabric.FlowKey{Table: 2, Priority: 100, Match: fabric.Match{EthType: 0x0800, Tuple: tuple}}, Kind: fabric.Pinned, Do: fabric.Do{Out: 9}, Idle: 60},
		{FlowKey: fabric.FlowKey{Table: 2, Priority: 100, Match: fabric.Match{EthType: 0x0800, Tuple: udp}}, Kind: fabric.Pinned, Do: fabric.Do{Out: 9}, Idle: 60},
		{FlowKey: fabric.FlowKey{Table: 3, Priority: 100, Match: fabric.Match{EthDst: mac}}, Kind: fabric.HostHere, Do: fabric.Do{Out: 4}},
		{FlowKey: fabric.FlowKey{Table: 3, Priority: 100, Match: fabric.Match{EthDst: mac}}, Kind: fabric.HostThere, Do: fabric.Do{Group: 0x57000001}},
		{FlowKey: fabric.FlowKey{Table: 3}, Kind: fabric.Miss, Do: fabric.Do{Meter: 0x5707}},
		{FlowKey: fabric.FlowKey{Table: 2}, Kind: fabric.Pass, Do: fabric.Do{Goto: 3}},
	} {
		m := onTheWire(t, flowMod(f, openflow.FlowAdd))
		got, ours, ok := readFlow(&openflow.FlowStats{
			TableID: m.TableID, Priority: m.Priority, IdleTimeout: m.IdleTimeout, Cookie: m.Cookie, Match: m.Match, Instructions: m.Instructions,
		})
		if got != f || !ours || !ok {
			t.Errorf("%+v comes back as %+v, ours %v, known %v", f, got, ours, ok)
		}
		if removed := m.Flags&openflow.FlowSendRemoved != 0; removed != (f.Idle > 0) {
			t.Errorf("%+v: the switch says when it goes: %v", f, removed)
		}
		if d := onTheWire(t, flowMod(f, openflow.FlowDeleteStrict)); d.CookieMask != 0xffffffff00000000 || d.Cookie>>32 != 0x57454952 {
			t.Errorf("%+v is deleted by cookie %#x/%#x: another's could go", f, d.Cookie, d.CookieMask)
		}
	}
}

// A foreign flow is not taken for Weir's, even if it looks similar.
func TestFlowsOfOthers(t *testing.T) {
	for _, s := range []openflow.FlowStats{
		{Cookie: 0},
		{Cookie: 0x5745495300000000},
		{Cookie: fabric.Miss.Cookie(), Match: openflow.Match{openflow.VLANVID(0x1005, 0)}},
		{Cookie: fabric.Miss.Cookie(), Match: openflow.Match{openflow.EthDst(openflow.MAC{1}, openflow.MAC{1})}},
		{Cookie: fabric.Miss.Cookie(), Instructions: openflow.Instructions{openflow.InstructionMeter{MeterID: 1}}},
		{Cookie: fabric.Miss.Cookie(), Instructions: openflow.Instructions{openflow.InstructionApplyActions{
			Actions: openflow.Actions{openflow.ActionExperimenter{Experimenter: experimenterNicira, Data: []byte{0, 37, 0, 0, 0, 0, 0, 0, 0, 5, 0, 200}}},
		}}},
	} {
		if f, ours, ok := readFlow(&s); ours && ok {
			t.Errorf("%+v is taken for %+v", s, f)
		}
	}
}

// The text about a foreign flow is short, even if its match is long.
func TestForeign_LongMatch(t *testing.T) {
	long := slices.Repeat(openflow.Match{openflow.InPort(1)}, 8000)
	if s := foreign(&openflow.FlowStats{Match: long}); len(s) > 300 || !strings.Contains(s, "in_port=1") {
		t.Errorf("%d bytes: %.300s", len(s), s)
	}
}

func TestGroupsComeBackAsTheyWere(t *testing.T) {
	g := fabric.Group{ID: 0x57000009, Ports: []fabric.PortNo{2, 5, 7}}
	m := onTheWire(t, groupMod(g, openflow.GroupAdd))
	got := readGroup(&openflow.GroupDesc{Type: m.Type, GroupID: m.GroupID, Buckets: m.Buckets})
	if got.ID != g.ID || !slices.Equal(got.Ports, g.Ports) {
		t.Errorf("%+v comes back as %+v", g, got)
	}
	for _, b := range m.Buckets {
		if b.Weight != 1 || len(b.Actions) != 1 || b.WatchPort != b.Actions[0].(openflow.ActionOutput).Port {
			t.Errorf("bucket %+v: should watch the port it sends to", b)
		}
	}
	want := fabric.Meter{ID: 0x5703, Rate: 2000, Burst: 200}
	mm := onTheWire(t, meterMod(fabric.SetMeter{New: true, Meter: want}))
	if got := readMeter(&openflow.MeterConfig{Flags: mm.Flags, MeterID: mm.MeterID, Bands: mm.Bands}); got != want {
		t.Errorf("%+v comes back as %+v", want, got)
	}
}
