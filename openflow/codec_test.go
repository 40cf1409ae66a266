package openflow

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// same compares messages; fields are compared by ==, and empty lists are nil's equal.
var same = cmp.Options{cmpopts.EquateEmpty(), cmp.AllowUnexported(Field{}), cmpopts.EquateComparable(netip.Addr{})}

// wireExamples are messages byte by byte, written down from the specification's structures.
var wireExamples = []struct {
	name, hex, text string
	m               Message
}{
	{
		"hello", "04000010 00000001 0001 0008 00000012",
		"HELLO versions=[1,4]", &Hello{Versions: []uint8{1, 4}},
	},
	{"hello without a bitmap", "04000008 00000001", "HELLO versions=[]", &Hello{}},
	{"echo", "0402000b 00000007 616263", "ECHO_REQUEST data=616263", &EchoRequest{Data: []byte("abc")}},
	{"barrier", "04140008 00000007", "BARRIER_REQUEST", &BarrierRequest{}},
	{
		"error", "0401000c 00000009 000b 0000",
		"ERROR type=ROLE_REQUEST_FAILED code=STALE (11/0) data=-", &ErrorMessage{ErrorType: ErrorRoleRequestFailed, Code: CodeRoleStale},
	},
	{
		"features", "04060020 00000002 0000001122334455 00000100 fe 01 0000 0000004f 00000000",
		"FEATURES_REPLY datapath_id=0000001122334455 n_buffers=256 n_tables=254 auxiliary_id=1 capabilities=FLOW_STATS|TABLE_STATS|PORT_STATS|GROUP_STATS|QUEUE_STATS reserved=0",
		&FeaturesReply{
			DatapathID: 0x1122334455, Buffers: 256, Tables: 254, AuxiliaryID: 1,
			Capabilities: CapabilityFlowStats | CapabilityTableStats | CapabilityPortStats | CapabilityGroupStats | CapabilityQueueStats,
		},
	},
	{
		"role", "04180018 00000003 00000002 00000000 0000000000000005",
		"ROLE_REQUEST role=MASTER generation_id=5", &RoleRequest{Role: RoleMaster, GenerationID: 5},
	},
	{
		"packet-in", "040a0030 00000000 ffffffff 0004 01 02 00000000000000aa 0001 000c 80000004 00000003 00000000 0000 deadbeef 0000",
		"PACKET_IN buffer_id=NO_BUFFER total_len=4 reason=ACTION table_id=2 cookie=0xaa match=in_port=3 data=deadbeef0000",
		&PacketIn{BufferID: NoBuffer, TotalLen: 4, Reason: PacketInAction, TableID: 2, Cookie: 0xaa, Match: Match{InPort(3)}, Data: []byte{0xde, 0xad, 0xbe, 0xef, 0, 0}},
	},
	{
		"packet-out", "040d002c 00000000 ffffffff fffffffd 0010 000000000000 0000 0010 00000002 ffff 000000000000 deadbeef",
		"PACKET_OUT buffer_id=NO_BUFFER in_port=CONTROLLER actions=output:2 data=deadbeef",
		&PacketOut{BufferID: NoBuffer, InPort: PortController, Actions: Actions{ActionOutput{Port: 2, MaxLen: NoMaxLen}}, Data: []byte{0xde, 0xad, 0xbe, 0xef}},
	},
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWireExamples(t *testing.T) {
	for _, e := range wireExamples {
		b := unhex(t, e.hex)
		h, m, err := Decode(b)
		if err != nil {
			t.Errorf("%s: %v", e.name, err)
			continue
		}
		if d := cmp.Diff(e.m, m, same); d != "" {
			t.Errorf("%s: %s", e.name, d)
		}
		if got := m.String(); got != e.text {
			t.Errorf("%s prints as\n%s, want\n%s", e.name, got, e.text)
		}
		again, err := Append(nil, h.XID, e.m)
		if err != nil || hex.EncodeToString(again) != hex.EncodeToString(b) {
			t.Errorf("%s is written as %x, %v; want %x", e.name, again, err, b)
		}
	}
}

// A match on TCP flags by the ONF's extension, a meter, and a copy to the controller.
func TestFlowModExample(t *testing.T) {
	m := &FlowMod{
		Cookie: 1, IdleTimeout: 10, Priority: 100, BufferID: NoBuffer, OutPort: PortAny, OutGroup: GroupAny, Flags: FlowSendRemoved,
		Match: Match{EthType(0x800), IPProto(6), TCPFlags(TCPSyn, TCPSyn)},
		Instructions: Instructions{
			InstructionMeter{MeterID: 3},
			InstructionApplyActions{Actions: Actions{ActionOutput{Port: PortController, MaxLen: 128}}},
		},
	}
	b, err := Append(nil, 0, m)
	if err != nil {
		t.Fatal(err)
	}
	want := "040e0070 00000000 0000000000000001 0000000000000000 00 00 000a 0000 0064 ffffffff ffffffff ffffffff 0001 0000" +
		"0001 001b 80000a02 0800 80001401 06 ffff5508 4f4e4600 0002 0002 0000000000" +
		"0006 0008 00000003 0004 0018 00000000 0000 0010 fffffffd 0080 000000000000"
	if got := hex.EncodeToString(b); got != strings.ReplaceAll(want, " ", "") {
		t.Errorf("written as\n%s, want\n%s", got, strings.ReplaceAll(want, " ", ""))
	}
	if got, want := m.String(), "match=eth_type=0x800,ip_proto=6,tcp_flags=0x2/0x2 instructions=meter:3,apply_actions(output:CONTROLLER:128)"; !strings.Contains(got, want) {
		t.Errorf("prints as %s, want %s in it", got, want)
	}
	j, err := JSON(Header{XID: 5}, m)
	wantJSON := `{"type":"FLOW_MOD","xid":5,"body":{"cookie":1,"cookie_mask":0,"table_id":0,"command":"ADD","idle_timeout":10,` +
		`"hard_timeout":0,"priority":100,"buffer_id":4294967295,"out_port":"ANY","out_group":"ANY","flags":["SEND_FLOW_REM"],` +
		`"match":{"eth_type":2048,"ip_proto":6,"tcp_flags":{"value":2,"mask":2}},` +
		`"instructions":[{"type":"meter","meter_id":3},{"type":"apply_actions","actions":[{"type":"output","port":"CONTROLLER","max_len":128}]}]}}`
	if err != nil || string(j) != wantJSON {
		t.Errorf("as JSON %s, %v; want %s", j, err, wantJSON)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, c := range []struct {
		name, hex, field string
		offset           int
		err              error
	}{
		{"nothing", "", "header", 0, ErrTruncated},
		{"a length below the header's", "04000007 00000000", "length", 2, ErrLength},
		{"more than its length", "04000008 00000000 00", "length", 2, ErrLength},
		{"less than its length", "04020009 00000000", "length", 2, ErrTruncated},
		{"another version", "01020008 00000000", "version", 0, ErrVersion},
		{"a type that there is not", "041e0008 00000000", "type", 1, ErrUnknown},
		{"a barrier with a body", "0414000c 00000000 00000000", "length", 8, ErrLength},
		{"half a role", "04180010 00000000 00000002 00000000", "generation_id", 16, ErrTruncated},
		{"a hello's element of length 0, over and over", "04000010 00000000 0001 0000 00000010", "elements.length", 10, ErrLength},
		{"an action of length 0", "040d0020 00000000 ffffffff 00000001 0008 000000000000 0000 0000 00000001", "action.length", 26, ErrLength},
		{"an output of 8 bytes", "040d0020 00000000 ffffffff 00000001 0008 000000000000 0000 0008 00000001", "action.length", 26, ErrLength},
		{"actions beyond the message", "040d0018 00000000 ffffffff 00000001 0008 000000000000", "actions", 24, ErrTruncated},
		{"a field twice", "040a0030 00000000 ffffffff 0000 00 00 0000000000000000 0001 0014 80000004 00000003 80000004 00000003 00000000", "match.in_port", 36, ErrDuplicate},
		{"an in_port of 2 bytes", "040a0028 00000000 ffffffff 0000 00 00 0000000000000000 0001 000a 80000002 0003 000000000000", "oxm_length", 31, ErrLength},
		{"a match without its padding", "040a0024 00000000 ffffffff 0000 00 00 0000000000000000 0001 000c 80000004 00000003", "match.length", 26, ErrTruncated},
	} {
		_, _, err := Decode(unhex(t, c.hex))
		var e *DecodeError
		if !errors.As(err, &e) || !errors.Is(err, c.err) || e.Field != c.field || e.Offset != c.offset {
			t.Errorf("%s: %v; want %v at %s, byte %d", c.name, err, c.err, c.field, c.offset)
		}
	}
}

// Frequent messages are decoded into a struct that was used before, without allocation.
func TestDecodeAllocates(t *testing.T) {
	var sum uint64
	for _, c := range []struct {
		m    Message
		into Message
	}{
		{&PacketIn{BufferID: NoBuffer, Match: Match{InPort(3), TCPFlags(2, 0)}, Data: make([]byte, 60)}, new(PacketIn)},
		{&FlowRemoved{Match: Match{InPort(3), EthType(0x800)}}, new(FlowRemoved)},
		{&EchoRequest{Data: []byte("abc")}, new(EchoRequest)},
		{&EchoReply{Data: []byte("abc")}, new(EchoReply)},
		{&BarrierReply{}, new(BarrierReply)},
		{&MultipartReply{Type: MultipartPortStats, Body: make(PortStatsReply, 48)}, new(MultipartReply)},
	} {
		b, err := Append(nil, 1, c.m)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() {
			if err := c.into.DecodeBody(b[HeaderLen:]); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s allocates %v times", c.m.MessageType(), n)
		}
		it, err := IteratePortStats(b[HeaderLen:])
		if c.m.MessageType() != TypeMultipartReply {
			if err == nil {
				t.Errorf("%s is taken for port counters", c.m.MessageType())
			}
			continue
		}
		if n := testing.AllocsPerRun(100, func() {
			var s PortStats
			for it := it; it.Next(&s); {
				sum += s.TxBytes
			}
		}); n != 0 || it.Len() != 48 {
			t.Errorf("going through %d ports allocates %v times", it.Len(), n)
		}
	}
}

// A value that OpenFlow cannot encode is refused when written, with its name in the error.
func TestAppendRefuses(t *testing.T) {
	long := make([]byte, MaxLen)
	for _, c := range []struct {
		name string
		m    Message
		err  error
	}{
		{"an echo of 64 KiB", &EchoRequest{Data: long}, ErrTooLong},
		{"actions of 64 KiB", &PacketOut{Actions: Actions{ActionExperimenter{Data: long}}}, ErrTooLong},
		{"a port's name of 17 bytes", &PortStatus{Desc: Port{Name: "seventeen letters"}}, ErrTooLong},
		{"an action of no type", &PacketOut{Actions: Actions{ActionPlain{Type: 9}}}, ErrUnknown},
		{"a band of no type", &MeterMod{Bands: []Band{{Type: 7}}}, ErrUnknown},
		{"a request for no port", &MultipartRequest{Type: MultipartPortStats}, ErrValue},
		{"a body of another kind", &MultipartRequest{Type: MultipartQueue, Body: PortStatsRequest{}}, ErrValue},
		{"a reply's body in a request", &MultipartRequest{Type: MultipartPortStats, Body: PortStatsReply{}}, ErrValue},
		{"a request's body in a reply", &MultipartReply{Type: MultipartPortStats, Body: PortStatsRequest{}}, ErrValue},
	} {
		b, err := Append([]byte("before"), 1, c.m)
		var e *EncodeError
		if !errors.As(err, &e) || !errors.Is(err, c.err) || string(b) != "before" {
			t.Errorf("%s: %v, and %d bytes are left; want %v and what was there before", c.name, err, len(b), c.err)
		}
	}
	if _, err := NewField(FieldEthDst, make([]byte, 5), nil); !errors.Is(err, ErrLength) {
		t.Errorf("an Ethernet address of 5 bytes: %v", err)
	}
}
