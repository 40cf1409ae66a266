package record

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/internal/testseed"
	"weir/law"
	"weir/law/fabric"
	"weir/law/flows"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// events has one of each kind.
var events = []law.Event{
	law.Tick{}, &inventory.Switch{}, &inventory.Host{}, &inventory.SwitchLeft{}, &inventory.HostLeft{}, &telemetry.Telemetry{}, &telemetry.Arrivals{},
	&fabric.Joined{}, &fabric.Left{}, &fabric.PortChanged{}, &fabric.PacketIn{}, &fabric.Confirmed{}, &fabric.Expired{}, &fabric.PinAsked{}, &fabric.PinDropped{},
	&fabric.PortStats{}, &fabric.StatsFailed{}, &flows.Declared{}, &flows.Began{}, &flows.Ended{}, &flows.Progress{},
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
			if v.Type().Field(i).IsExported() {
				fill(rnd, v.Field(i))
			}
		}
	case reflect.String:
		v.SetString([]string{"", "swp1", "ä b", "\xff"}[rnd.IntN(4)])
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
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.EquateEmpty(),
}

// Every field of every event and action is in the format, and is read again as it was.
func TestEvents_EveryKind(t *testing.T) {
	if len(events)+len(actions) != len(tags) {
		t.Fatalf("%d events and %d actions, the format has %d", len(events), len(actions), len(tags))
	}
	rnd := testseed.New(t)
	for range 300 {
		for i, e := range events {
			entry := &Entry{Serial: 7, Now: time.Duration(rnd.Int64N(1e15)), Ends: i == 3, Begins: []LawBegins{{1, "sicc", 2, `{"a": 1}`}}}
			entry.Event.Value = drawn(rnd, e)
			entry.Steps = []Step{{Law: 1, Actions: []Item[law.Action]{{Value: drawn(rnd, actions[i%len(actions)])}}}}
			b := encoded(t, entry)
			var got Entry
			if err := decoding.Unmarshal(b, &got); err != nil {
				t.Fatalf("%T: %v", e, err)
			}
			if d := cmp.Diff(entry, &got, same...); d != "" {
				t.Fatalf("%T and %T, written and read:\n%s", e, entry.Steps[0].Actions[0].Value, d)
			}
			if again := encoded(t, &got); !bytes.Equal(again, b) {
				t.Fatalf("%T: encoded again, it is %x, was %x", e, again, b)
			}
		}
	}
}

// The format is that of Version: other fields, or fields in another order, would be read as something else.
func TestVersion(t *testing.T) {
	const version3 = "5a15eee09ecbed035b1e975599cd6061bef855a03cbaccd6c2fb825629dcee52"
	text := described(reflect.TypeFor[Entry]()) + described(reflect.TypeFor[Header]())
	for _, number := range slices.Sorted(maps.Keys(tags)) {
		text += fmt.Sprint("\n", number, " ", described(reflect.TypeOf(tags[number])))
	}
	if got := fmt.Sprintf("%x", sha256.Sum256([]byte(text))); got != version3 {
		t.Errorf("the format is another one: raise Version, then put %s here. It is\n%s", got, text)
	}
}

// described returns the fields of a type and of all types in it.
func described(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return fmt.Sprint(t.Kind(), " of ", described(t.Elem()))
	case reflect.Struct:
		text := t.Name() + "{"
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() || f.Name == "_" {
				text += fmt.Sprint(f.Name, f.Tag, " ", described(f.Type), ", ")
			}
		}
		return text + "}"
	}
	return t.Kind().String()
}

// encoded encodes an entry as a Writer does.
func encoded(t testing.TB, e *Entry) []byte {
	t.Helper()
	part := func(v any) cbor.RawMessage {
		b, err := encode(new(bytes.Buffer), v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	w := &written{Serial: e.Serial, Now: e.Now, Begins: e.Begins, Event: part(plain(nil, []Item[law.Event]{e.Event})[0]), Cause: e.Cause, Ends: e.Ends}
	for _, s := range e.Steps {
		w.Steps = append(w.Steps, step[cbor.RawMessage]{Law: s.Law, Actions: part(plain(nil, s.Actions))})
	}
	return part(w)
}

// A law's own kind of event or action is named, and cannot be mistaken for nothing.
func TestEvents_Others(t *testing.T) {
	x := newWorld(t, Config{}, "{}", &always{[]law.Action{strange{}, &strange{}, nil}})
	x.step(strange{})
	r := open(t, x.close())
	e := all(t, r)[0]
	got := []string{e.Event.Other}
	for _, a := range e.Steps[0].Actions {
		got = append(got, a.Other)
	}
	if e.Event.Value != nil || !slices.Equal(got, []string{"record.strange", "record.strange", "*record.strange", ""}) || len(r.Problems()) != 4 {
		t.Errorf("%+v, %q", e, r.Problems())
	}
}

type strange struct{}

func (strange) LawEvent()  {}
func (strange) LawAction() {}

// A reader refuses bytes that are no entry.
func TestDecode_Refuses(t *testing.T) {
	const (
		begin = "87" + "01" + "00" + "80"                                  // serial number, time, laws
		end   = "00" + "80" + "f4"                                         // cause, steps, the end
		grant = begin + "60" + "00" + "81" + "82" + "01" + "81" + "d9eac4" // one step, one action
	)
	for what, text := range map[string]string{
		"an owner of 300":              grant + "86" + "19012c" + "00" + "830040" + "8342000042000000" + "000000" + "f4",
		"a grant of five elements":     grant + "85" + "00" + "00" + "830040" + "8342000042000000" + "0000" + "f4",
		"half a number":                "8719",
		"an array beyond the input":    begin + "60" + "00" + "9b00000000ffffffff",
		"an address of three bytes":    grant + "86" + "00" + "00" + "830043010203" + "8342000042000000" + "000000" + "f4",
		"null":                         begin + "f6" + end,
		"an array without a length":    begin + "60" + "00" + "9fff" + "f4",
		"an event of an action's kind": begin + "d9eac4" + "86" + "0000" + "830040" + "8342000042000000" + "000000" + end,
		"an event without a tag":       begin + "a0" + end,
		"an event of an unknown tag":   begin + "d9eaff" + "a0" + end,
		"an unknown field":             begin + "d9ea63" + "a1" + "6141" + "00" + end,
		"a field that comes twice":     begin + "d9ea63" + "a2" + "624174" + "00" + "624174" + "00" + end,
		"too deep":                     begin + strings.Repeat("81", 40) + "00" + end,
	} {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		var e Entry
		if err := decoding.Unmarshal(b, &e); err == nil {
			t.Errorf("%s is read as %+v", what, e)
		}
	}
	// The rest of these entries is right.
	for _, text := range []string{
		grant + "86" + "182c" + "00" + "830040" + "8342000042000000" + "000000" + "f4", begin + "60" + end, begin + "d9ea63" + "a1" + "624174" + "00" + end,
	} {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := decoding.Unmarshal(b, new(Entry)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Memory is limited by the input: an array has room for the elements that are there, and an entry has a limited size.
func TestDecode_Memory(t *testing.T) {
	many := func(head, element, end string) []byte {
		b, err := hex.DecodeString(head + strings.Repeat(element, maxElements) + end)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const begin = "8701008060" + "00"
	for what, b := range map[string][]byte{
		"actions without a kind":   many(begin+"818201"+"9a00020000", "60", "f4"),
		"steps that are no steps":  many(begin+"9a00020000", "00", "f4"),
		"pairs that are no pairs":  many("87010080"+"d9ea66"+"a3"+"624174"+"00"+"6154"+"00"+"65506f727473"+"81"+"8400"+"8700000000000000"+"9a00020000", "00", "00"+"0080f4"),
		"grants that are no grant": many(begin+"818201"+"9a00020000", "d9eac400", "f4"),
		"a long text":              many("870100807b0000000fffffffff", "40", ""),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_ = decoding.Unmarshal(b, new(Entry)) // most are refused
		runtime.ReadMemStats(&after)
		grown := after.TotalAlloc - before.TotalAlloc
		if grown > 150*uint64(len(b)) {
			t.Errorf("%s: %d bytes for %d", what, grown, len(b))
		}
	}
	long := slices.Concat([]byte{0x7b, 0, 0, 0, 0, 0x3f, 0xff, 0xff, 0xff}, make([]byte, 3*MaxEntry)) // 1 GB of text, it says
	r := &Reader{in: limited{in: bufio.NewReader(bytes.NewReader(long))}}
	r.items = decoding.NewDecoder(&r.in)
	if err := r.item(new(Entry)); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "more than") {
		t.Error(err)
	}
}
