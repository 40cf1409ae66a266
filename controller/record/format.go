package record

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/fxamacker/cbor/v2"

	"weir/law"
	"weir/law/fabric"
	"weir/law/flows"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// tags has the kinds of events and actions that the format has, each with its CBOR tag. A tag that was used once is never used again.
var tags = map[uint64]any{
	60000: law.Tick{}, 60001: inventory.Switch{}, 60002: inventory.Host{}, 60003: inventory.SwitchLeft{}, 60004: inventory.HostLeft{},
	60005: telemetry.Telemetry{}, 60006: telemetry.Arrivals{},
	60007: fabric.Joined{}, 60008: fabric.Left{}, 60009: fabric.PortChanged{}, 60010: fabric.PacketIn{}, 60011: fabric.Confirmed{},
	60012: fabric.Expired{}, 60013: fabric.PinAsked{}, 60014: fabric.PinDropped{}, 60015: fabric.PortStats{}, 60016: fabric.StatsFailed{},
	60017: flows.Declared{}, 60018: flows.Began{}, 60019: flows.Ended{}, 60020: flows.Progress{},

	60100: law.Grant{}, 60101: fabric.SetFlow{}, 60102: fabric.DropFlow{}, 60103: fabric.SetGroup{}, 60104: fabric.DropGroup{},
	60105: fabric.SetMeter{}, 60106: fabric.Barrier{}, 60107: fabric.PacketOut{}, 60108: fabric.AskStats{}, 60109: fabric.Report{},
}

var encoding, decoding, tagOf = modes()

// modes makes the two directions from tags. An array without elements stands for nil too, so that null, which stands for any value in
// one byte, is no part of the format. The encoder does not know the tags: it would look for the tag of each number of an event.
func modes() (cbor.UserBufferEncMode, cbor.DecMode, map[reflect.Type]uint64) {
	set, tagOf := cbor.NewTagSet(), map[reflect.Type]uint64{}
	for number, of := range tags {
		t := reflect.TypeOf(of)
		must(0, set.Add(cbor.TagOptions{DecTag: cbor.DecTagRequired}, t, number))
		tagOf[t], tagOf[reflect.PointerTo(t)] = number, number
	}
	noNull := must(cbor.NewSimpleValueRegistryFromDefaults(cbor.WithRejectedSimpleValue(22), cbor.WithRejectedSimpleValue(23)))
	return must(cbor.EncOptions{NilContainers: cbor.NilContainerAsEmpty}.UserBufferEncMode()),
		must(cbor.DecOptions{
			DupMapKey: cbor.DupMapKeyEnforcedAPF, MaxNestedLevels: 16, MaxArrayElements: maxElements, MaxMapPairs: 64,
			IndefLength: cbor.IndefLengthForbidden, UTF8: cbor.UTF8DecodeInvalid, ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
			FieldNameMatching: cbor.FieldNameMatchingCaseSensitive, BignumTag: cbor.BignumTagForbidden, SimpleValues: noNull,
		}.DecModeWithTags(set)), tagOf
}

// must panics for options that the library does not have: TestEvents_EveryKind sees it.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Item is an event or an action.
type Item[V any] struct {
	Value V      // nil: Other, or none
	Other string // a kind that the format does not have
}

// noEvent is encoded in place of the event of an entry that has none.
var noEvent = cbor.RawMessage{0x60} // ""

// known returns what stands for a value in a recording: the value itself with its tag, or the name of a kind that the format does not
// have.
func known(v any) any {
	if v == nil {
		return ""
	}
	t := reflect.TypeOf(v)
	if number, has := tagOf[t]; has {
		return cbor.Tag{Number: number, Content: v}
	}
	return t.String()
}

// UnmarshalCBOR reads an item.
func (i *Item[V]) UnmarshalCBOR(b []byte) error {
	const text = 3 // major type
	if b[0]>>5 == text {
		return decoding.Unmarshal(b, &i.Other)
	}
	if err := decoding.Unmarshal(b, &i.Value); err != nil {
		return err
	}
	// The library makes pointers. Kinds that are no pointers are values to laws.
	if v, is := reflect.ValueOf(i.Value).Elem().Interface().(V); is {
		i.Value = v
	}
	return nil
}

// encode appends the encoding of a value to a buffer, and returns it. The memory is valid until the buffer's next Reset.
func encode(to *bytes.Buffer, v any) (cbor.RawMessage, error) {
	before := to.Len()
	if err := encoding.MarshalToBuffer(v, to); err != nil {
		to.Truncate(before)
		return nil, fmt.Errorf("record: %w", err)
	}
	return to.Bytes()[before:], nil
}
