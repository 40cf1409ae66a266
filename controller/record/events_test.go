package record

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/testseed"
	"weir/law"
	"weir/law/fabric"
	"weir/law/inventory"
	"weir/law/telemetry"
)

var update = flag.Bool("update", false, "write record.proto")

// record.proto is made from the code.
func TestSchema(t *testing.T) {
	if *update {
		if err := os.WriteFile("record.proto", []byte(Schema()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("record.proto")
	if err != nil || string(got) != Schema() {
		t.Errorf("record.proto is another one (%v): go test ./controller/record -run TestSchema -update, if only fields were added", err)
	}
}

// events has one of each kind.
var events = []law.Event{
	law.Tick{}, &inventory.Switch{}, &inventory.Host{}, &inventory.SwitchLeft{}, &inventory.HostLeft{}, &telemetry.Telemetry{}, &telemetry.Arrivals{},
	&fabric.Joined{}, &fabric.Left{}, &fabric.PortChanged{}, &fabric.PacketIn{}, &fabric.Confirmed{}, &fabric.Expired{}, &fabric.PinAsked{}, &fabric.PinDropped{},
	&fabric.PortStats{}, &fabric.StatsFailed{},
}

var actions = []law.Action{
	law.Grant{}, fabric.SetFlow{}, fabric.DropFlow{}, fabric.SetGroup{}, fabric.DropGroup{}, fabric.SetMeter{}, fabric.Barrier{}, fabric.PacketOut{},
	fabric.AskStats{}, &fabric.Report{},
}

// drawn returns a value of v's type in which every field may have any value.
func drawn[T any](rnd *rand.Rand, v T) T {
	out := reflect.New(reflect.TypeOf(v)).Elem()
	fill(rnd, out)
	return out.Interface().(T)
}

func fill(rnd *rand.Rand, v reflect.Value) {
	switch p := v.Addr().Interface().(type) {
	case *netip.Addr:
		*p = address(rnd)
		return
	case *netip.AddrPort:
		*p = netip.AddrPortFrom(address(rnd), uint16(rnd.IntN(70000)))
		return
	case *netip.Prefix:
		if a := address(rnd); a.IsValid() {
			*p = netip.PrefixFrom(a, rnd.IntN(a.BitLen()+1))
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(rnd, v.Elem())
	case reflect.Slice:
		if n := rnd.IntN(4); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range v.Len() {
			fill(rnd, v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(rnd, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(rnd, v.Field(i))
		}
	case reflect.String:
		v.SetString([]string{"", "swp1", "ä b"}[rnd.IntN(3)])
	case reflect.Bool:
		v.SetBool(rnd.IntN(2) == 0)
	case reflect.Int64:
		v.SetInt(int64(rnd.Uint64() >> rnd.IntN(64) >> 1))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(rnd.Uint64() >> rnd.IntN(64) & (1<<v.Type().Bits() - 1))
	default:
		panic(fmt.Sprint("a field of kind ", v.Kind(), ": the format cannot have it"))
	}
}

func address(rnd *rand.Rand) netip.Addr {
	var b [16]byte
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	switch rnd.IntN(3) {
	case 0:
		return netip.Addr{}
	case 1:
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16(b)
}

var same = []cmp.Option{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.AllowUnexported(Step{}),
}

// Every field of every event and action is in the format, and is read again as it was.
func TestEvents_EveryKind(t *testing.T) {
	if len(events) != len(eventKinds) || len(actions) != len(actionKinds) {
		t.Fatalf("%d events of %d kinds, %d actions of %d", len(events), len(eventKinds), len(actions), len(actionKinds))
	}
	rnd := testseed.New(t)
	for range 300 {
		for i, e := range events {
			entry := &Entry{Serial: 7, Now: time.Duration(rnd.Int64N(1e15)), Event: drawn(rnd, e), Ends: i == 3, Begins: []LawBegins{{1, "sicc", 2, `{"a": 1}`}}}
			entry.Steps = []Step{{Law: 1, Actions: []Action{{Action: drawn(rnd, actions[i%len(actions)])}}}}
			b := encoded(entry)
			var got Entry
			var fields []field
			if err := decodeMessage(&fields, b, &got, (*coder).entry); err != nil {
				t.Fatalf("%T: %v", e, err)
			}
			got.Steps[0].raw = nil
			if d := cmp.Diff(entry, &got, same...); d != "" {
				t.Fatalf("%T and %T, written and read:\n%s", e, entry.Steps[0].Actions[0].Action, d)
			}
			if again := encoded(&got); !bytes.Equal(again, b) {
				t.Fatalf("%T: encoded again, it is %x, was %x", e, again, b)
			}
		}
	}
}

func encoded(e *Entry) []byte {
	var c coder
	c.entry(e)
	return c.b
}

// A law's own kind of event or action is named, and cannot be mistaken for nothing.
func TestEvents_Others(t *testing.T) {
	b := encoded(&Entry{Serial: 1, Event: strange{}, Steps: []Step{{Law: 1, Actions: []Action{{Action: strange{}}}}}})
	var got Entry
	var fields []field
	if err := decodeMessage(&fields, b, &got, (*coder).entry); err != nil {
		t.Fatal(err)
	}
	if got.Other != "record.strange" || got.Event != nil || got.Steps[0].Actions[0].Other != "record.strange" {
		t.Errorf("%+v", got)
	}
}

type strange struct{}

func (strange) LawEvent()  {}
func (strange) LawAction() {}

// Values that a Go type cannot have are refused.
func TestDecode_Refuses(t *testing.T) {
	for what, b := range map[string][]byte{
		"an owner of 300":              {5<<3 | 2, 9, 2<<3 | 2, 7, 1<<3 | 2, 5, 1<<3 | 2, 3, 1 << 3, 0xac, 0x02},
		"half a varint":                {1 << 3, 0x80},
		"a length beyond the message":  {4<<3 | 2, 100, 1},
		"an address of three bytes":    {0xd2, 0x01, 11, 3<<3 | 2, 9, 10<<3 | 2, 7, 1<<3 | 2, 5, 1, 2, 3, 4, 5},
		"a group where none may begin": {4<<3 | 4},
	} {
		var e Entry
		var fields []field
		if err := decodeMessage(&fields, b, &e, (*coder).entry); err == nil {
			t.Errorf("%s is read as %+v", what, e)
		}
	}
}
