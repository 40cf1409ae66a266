// Package oftest makes OpenFlow messages for tests: whatever the specification allows, drawn by [pgregory.net/rapid].
package oftest

import (
	"reflect"

	"pgregory.net/rapid"

	of "weir/openflow"
)

// Messages draws a message of any type, each as often as the others.
func Messages() *rapid.Generator[of.Message] {
	m := newMaker(anyField())
	var all []*rapid.Generator[of.Message]
	for t := of.TypeHello; of.New(t) != nil; t++ {
		all = append(all, m.message(t))
	}
	return rapid.OneOf(all...)
}

// MessagesOf draws messages of one type.
func MessagesOf(t of.Type) *rapid.Generator[of.Message] { return newMaker(anyField()).message(t) }

func matches(fields *rapid.Generator[of.Field]) *rapid.Generator[of.Match] {
	return rapid.Custom(func(t *rapid.T) of.Match {
		return rapid.SliceOfNDistinct(fields, 0, 6, func(f of.Field) of.FieldID { return f.ID }).Draw(t, "match")
	})
}

// maker holds how each type is drawn that has rules of its own.
type maker struct{ cfg rapid.MakeConfig }

// newMaker draws matches of these fields.
func newMaker(fields *rapid.Generator[of.Field]) *maker {
	m := &maker{}
	m.cfg.Types = map[reflect.Type]*rapid.Generator[any]{}
	override(m, matches(fields))
	override(m, actions())
	override(m, instructions())
	override(m, hexBytes(40))
	override(m, rapid.Custom(portNo))
	override(m, rapid.Custom(band))
	override(m, rapid.Custom(queueProperty))
	override(m, rapid.Custom(tableProperty))
	m.cfg.Fields = map[reflect.Type]map[string]*rapid.Generator[any]{
		reflect.TypeFor[of.Port]():         {"Name": text(16)},
		reflect.TypeFor[of.TableFeature](): {"Name": text(32)},
		reflect.TypeFor[of.DescReply](): {
			"Manufacturer": text(256), "Hardware": text(256), "Software": text(256), "SerialNum": text(32), "Datapath": text(256),
		},
	}
	return m
}

func override[V any](m *maker, g *rapid.Generator[V]) { m.cfg.Types[reflect.TypeFor[V]()] = g.AsAny() }

// value draws a struct or list by its fields, with m's rules.
func value[V any](m *maker) *rapid.Generator[V] { return rapid.MakeCustom[V](m.cfg) }

// message draws a struct of that type.
func message[V any, P interface {
	*V
	of.Message
}](m *maker) *rapid.Generator[of.Message] {
	g := value[V](m)
	return rapid.Custom(func(t *rapid.T) of.Message {
		v := g.Draw(t, "message")
		return P(&v)
	})
}

func (m *maker) message(typ of.Type) *rapid.Generator[of.Message] {
	switch typ {
	case of.TypeHello:
		return hello()
	case of.TypeError:
		return rapid.Map(message[of.ErrorMessage](m), experimentersNumber)
	case of.TypeEchoRequest:
		return message[of.EchoRequest](m)
	case of.TypeEchoReply:
		return message[of.EchoReply](m)
	case of.TypeExperimenter:
		return message[of.Experimenter](m)
	case of.TypeFeaturesReply:
		return message[of.FeaturesReply](m)
	case of.TypeGetConfigReply:
		return message[of.GetConfigReply](m)
	case of.TypeSetConfig:
		return message[of.SetConfig](m)
	case of.TypePacketIn:
		return rapid.Map(message[of.PacketIn](m), wholeLength)
	case of.TypeFlowRemoved:
		return message[of.FlowRemoved](m)
	case of.TypePortStatus:
		return message[of.PortStatus](m)
	case of.TypePacketOut:
		return rapid.Map(message[of.PacketOut](m), oneFrame)
	case of.TypeFlowMod:
		return message[of.FlowMod](m)
	case of.TypeGroupMod:
		return message[of.GroupMod](m)
	case of.TypePortMod:
		return message[of.PortMod](m)
	case of.TypeTableMod:
		return message[of.TableMod](m)
	case of.TypeMultipartRequest:
		return m.requests()
	case of.TypeMultipartReply:
		return m.replies()
	case of.TypeQueueGetConfigRequest:
		return message[of.QueueGetConfigRequest](m)
	case of.TypeQueueGetConfigReply:
		return message[of.QueueGetConfigReply](m)
	case of.TypeRoleRequest:
		return message[of.RoleRequest](m)
	case of.TypeRoleReply:
		return message[of.RoleReply](m)
	case of.TypeGetAsyncReply:
		return message[of.GetAsyncReply](m)
	case of.TypeSetAsync:
		return message[of.SetAsync](m)
	case of.TypeMeterMod:
		return message[of.MeterMod](m)
	}
	return rapid.Map(rapid.Just(typ), of.New) // a header only
}

// wholeLength makes a packet-in's frame at least as long as what it carries of it.
func wholeLength(m of.Message) of.Message {
	in := m.(*of.PacketIn)
	in.TotalLen = max(in.TotalLen, uint16(len(in.Data)))
	return in
}

// oneFrame makes a packet-out bring a frame or name a buffer, not both.
func oneFrame(m of.Message) of.Message {
	out := m.(*of.PacketOut)
	if len(out.Data) > 0 {
		out.BufferID = of.NoBuffer
	}
	return out
}

// experimentersNumber puts his number first in an experimenter's error.
func experimentersNumber(m of.Message) of.Message {
	e := m.(*of.ErrorMessage)
	if e.ErrorType == of.ErrorExperimenter {
		e.Data = append([]byte{0, 0, 0x23, 0x20}, e.Data...)
	}
	return e
}

func hello() *rapid.Generator[of.Message] {
	versions := rapid.SliceOfNDistinct(rapid.Uint8(), 0, 8, rapid.ID)
	return rapid.Custom(func(t *rapid.T) of.Message {
		return &of.Hello{Versions: sorted(versions.Draw(t, "versions"))}
	})
}
