package oftest

import (
	"cmp"
	"slices"

	"pgregory.net/rapid"

	of "weir/openflow"
)

func sorted[V cmp.Ordered](s []V) []V {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

func hexBytes(n int) *rapid.Generator[of.HexBytes] {
	g := rapid.SliceOfN(rapid.Byte(), 0, n)
	return rapid.Custom(func(t *rapid.T) of.HexBytes { return g.Draw(t, "bytes") })
}

// text draws printable ASCII of at most n bytes.
func text(n int) *rapid.Generator[any] {
	return rapid.StringOfN(rapid.RuneFrom([]rune("abcdefghijklmnopqrstuvwxyzABC0123456789-_. ")), 0, n, n).AsAny()
}

// portNo draws a common number, a reserved port, or any number.
func portNo(t *rapid.T) of.PortNo {
	switch rapid.IntRange(0, 2).Draw(t, "port kind") {
	case 0:
		return of.PortNo(rapid.Uint32Range(1, 64).Draw(t, "port"))
	case 1:
		return of.PortNo(rapid.Uint32Range(uint32(of.PortIn), uint32(of.PortAny)).Draw(t, "reserved port"))
	}
	return of.PortNo(rapid.Uint32().Draw(t, "port"))
}

// knownField draws a field that this package knows, with a value of its bits, and often a mask where it may have one.
func knownField(t *rapid.T) of.Field {
	id := rapid.SampledFrom(of.Fields()).Draw(t, "field")
	v := bits(t, id.Bits(), id.Bytes())
	if !id.CanMask() || rapid.Bool().Draw(t, "exact") {
		return must(of.NewField(id, v, nil))
	}
	mask := bits(t, id.Bits(), id.Bytes())
	for i := range v {
		v[i] &= mask[i]
	}
	return must(of.NewField(id, v, mask))
}

// bits draws a number of that many bits, in that many bytes.
func bits(t *rapid.T, n, size int) []byte {
	b := rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "bits")
	for i := range b {
		if above := (size-i)*8 - n; above > 0 { // bits of this byte and the later ones that are not the field's
			b[i] &= 0xff >> min(above, 8)
		}
	}
	return b
}

// otherField draws a field that this package does not know, which is kept as it came: Open vSwitch's registers, and
// long ones.
func otherField(t *rapid.T) of.Field {
	id := rapid.Custom(func(t *rapid.T) of.FieldID {
		class := rapid.SampledFrom([]uint16{of.ClassNXM0, of.ClassNXM1, 0x8001, of.ClassExperimenter}).Draw(t, "class")
		return of.NewFieldID(class, rapid.Uint8Range(0, 127).Draw(t, "number"), rapid.Uint32().Draw(t, "experimenter"))
	}).Filter(func(id of.FieldID) bool { return id.Bits() == 0 }).Draw(t, "id")
	size := rapid.IntRange(1, 60).Draw(t, "size")
	v := rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "value")
	if rapid.Bool().Draw(t, "exact") {
		return must(of.NewField(id, v, nil))
	}
	return must(of.NewField(id, v, rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "mask")))
}

// anyField draws a known field, or, once in ten times, another.
func anyField() *rapid.Generator[of.Field] {
	known, other := rapid.Custom(knownField), rapid.Custom(otherField)
	return rapid.Custom(func(t *rapid.T) of.Field {
		if rapid.IntRange(0, 9).Draw(t, "known") > 0 {
			return known.Draw(t, "field")
		}
		return other.Draw(t, "field")
	})
}

func must(f of.Field, err error) of.Field {
	if err != nil {
		panic(err) // a generator that is wrong
	}
	return f
}

var actionTypes = []of.ActionType{
	of.ActionTypeOutput, of.ActionTypeCopyTTLOut, of.ActionTypeCopyTTLIn, of.ActionTypeSetMPLSTTL, of.ActionTypeDecMPLSTTL,
	of.ActionTypePushVLAN, of.ActionTypePopVLAN, of.ActionTypePushMPLS, of.ActionTypePopMPLS, of.ActionTypeSetQueue,
	of.ActionTypeGroup, of.ActionTypeSetNwTTL, of.ActionTypeDecNwTTL, of.ActionTypeSetField, of.ActionTypePushPBB,
	of.ActionTypePopPBB, of.ActionTypeExperimenter,
}

func action(t *rapid.T) of.Action {
	typ := rapid.SampledFrom(actionTypes).Draw(t, "action")
	switch typ {
	case of.ActionTypeOutput:
		return of.ActionOutput{Port: portNo(t), MaxLen: rapid.Uint16().Draw(t, "max_len")}
	case of.ActionTypeSetMPLSTTL, of.ActionTypeSetNwTTL:
		return of.ActionSetTTL{MPLS: typ == of.ActionTypeSetMPLSTTL, TTL: rapid.Uint8().Draw(t, "ttl")}
	case of.ActionTypePushVLAN, of.ActionTypePushMPLS, of.ActionTypePushPBB:
		return of.ActionPush{Type: typ, EtherType: rapid.Uint16().Draw(t, "ethertype")}
	case of.ActionTypePopMPLS:
		return of.ActionPopMPLS{EtherType: rapid.Uint16().Draw(t, "ethertype")}
	case of.ActionTypeSetQueue:
		return of.ActionSetQueue{QueueID: rapid.Uint32().Draw(t, "queue")}
	case of.ActionTypeGroup:
		return of.ActionGroup{GroupID: of.GroupID(rapid.Uint32().Draw(t, "group"))}
	case of.ActionTypeSetField:
		f := knownField(t)
		return of.ActionSetField{Field: must(of.NewField(f.ID, f.Value(), nil))}
	case of.ActionTypeExperimenter:
		return of.ActionExperimenter{Experimenter: rapid.Uint32().Draw(t, "experimenter"), Data: blocks(t)}
	}
	return of.ActionPlain{Type: typ}
}

// blocks draws bytes in eights, for what is filled up to eights.
func blocks(t *rapid.T) of.HexBytes {
	n := 8 * rapid.IntRange(0, 4).Draw(t, "blocks")
	return rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "data")
}

func actions() *rapid.Generator[of.Actions] {
	one := rapid.Custom(action)
	return rapid.Custom(func(t *rapid.T) of.Actions { return rapid.SliceOfN(one, 0, 5).Draw(t, "actions") })
}

var instructionTypes = []of.InstructionType{
	of.InstructionTypeGotoTable, of.InstructionTypeWriteMetadata, of.InstructionTypeWriteActions,
	of.InstructionTypeApplyActions, of.InstructionTypeClearActions, of.InstructionTypeMeter, of.InstructionTypeExperimenter,
}

func instruction(t *rapid.T) of.Instruction {
	switch rapid.SampledFrom(instructionTypes).Draw(t, "instruction") {
	case of.InstructionTypeGotoTable:
		return of.InstructionGotoTable{TableID: of.TableID(rapid.Uint8().Draw(t, "table"))}
	case of.InstructionTypeWriteMetadata:
		return of.InstructionWriteMetadata{Metadata: rapid.Uint64().Draw(t, "metadata"), Mask: rapid.Uint64().Draw(t, "mask")}
	case of.InstructionTypeWriteActions:
		return of.InstructionWriteActions{Actions: actions().Draw(t, "actions")}
	case of.InstructionTypeApplyActions:
		return of.InstructionApplyActions{Actions: actions().Draw(t, "actions")}
	case of.InstructionTypeMeter:
		return of.InstructionMeter{MeterID: of.MeterID(rapid.Uint32().Draw(t, "meter"))}
	case of.InstructionTypeExperimenter:
		return of.InstructionExperimenter{Experimenter: rapid.Uint32().Draw(t, "experimenter"), Data: blocks(t)}
	}
	return of.InstructionClearActions{}
}

func instructions() *rapid.Generator[of.Instructions] {
	one := rapid.Custom(instruction)
	return rapid.Custom(func(t *rapid.T) of.Instructions { return rapid.SliceOfN(one, 0, 3).Draw(t, "instructions") })
}

func band(t *rapid.T) of.Band {
	k := of.Band{
		Type: rapid.SampledFrom([]of.BandType{of.BandDrop, of.BandDSCPRemark, of.BandExperimenter}).Draw(t, "band"),
		Rate: rapid.Uint32().Draw(t, "rate"), BurstSize: rapid.Uint32().Draw(t, "burst"),
	}
	switch k.Type {
	case of.BandDSCPRemark:
		k.PrecLevel = rapid.Uint8().Draw(t, "prec_level")
	case of.BandExperimenter:
		k.Experimenter, k.Data = rapid.Uint32().Draw(t, "experimenter"), blocks(t)
	}
	return k
}

func queueProperty(t *rapid.T) of.QueueProperty {
	p := of.QueueProperty{
		Property: rapid.SampledFrom([]of.QueuePropertyType{of.QueueMinRate, of.QueueMaxRate, of.QueueExperimenter}).Draw(t, "property"),
	}
	if p.Property == of.QueueExperimenter {
		p.Experimenter, p.Data = rapid.Uint32().Draw(t, "experimenter"), blocks(t)
	} else {
		p.Rate = rapid.Uint16().Draw(t, "rate")
	}
	return p
}
