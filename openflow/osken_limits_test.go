package openflow_test

import (
	"reflect"

	of "weir/openflow"
)

// oskenCannotRead returns the fault or the gap of os-ken 4.2.2 with a message; "" if os-ken can read it.
func oskenCannotRead(m of.Message) string {
	switch m.MessageType() {
	case of.TypeHello, of.TypeError, of.TypeEchoRequest, of.TypeEchoReply, of.TypeExperimenter, of.TypeFeaturesReply,
		of.TypeGetConfigReply, of.TypePacketIn, of.TypeFlowRemoved, of.TypePortStatus, of.TypeFlowMod, of.TypeMultipartReply,
		of.TypeBarrierReply, of.TypeQueueGetConfigReply, of.TypeRoleReply, of.TypeGetAsyncReply:
	default:
		return "os-ken does not read what a controller says"
	}
	return oskenLimit(reflect.ValueOf(m), false)
}

// oskenCannotWrite likewise.
func oskenCannotWrite(m of.Message) string {
	switch m.(type) {
	case *of.Hello, *of.ErrorMessage, *of.EchoRequest, *of.EchoReply, *of.Experimenter, *of.FeaturesRequest, *of.GetConfigRequest,
		*of.SetConfig, *of.PacketOut, *of.FlowMod, *of.GroupMod, *of.PortMod, *of.TableMod, *of.BarrierRequest,
		*of.QueueGetConfigRequest, *of.RoleRequest, *of.GetAsyncRequest, *of.SetAsync, *of.MeterMod,
		*of.MultipartRequest:
	default:
		return "os-ken does not write what a switch says"
	}
	return oskenLimit(reflect.ValueOf(m), true)
}

// oskenLimit looks through a message for what os-ken cannot do.
func oskenLimit(v reflect.Value, writes bool) string {
	return limit(v, func(x any) string { return oskenPart(x, writes) })
}

// limit asks of all that a message holds, and gives the first answer.
func limit(v reflect.Value, of func(any) string) string {
	if why := of(v.Interface()); why != "" {
		return why
	}
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() {
			return limit(v.Elem(), of)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				if why := limit(v.Field(i), of); why != "" {
					return why
				}
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if why := limit(v.Index(i), of); why != "" {
				return why
			}
		}
	}
	return ""
}

func oskenPart(x any, writes bool) string {
	switch x := x.(type) {
	case *of.Hello:
		return oskenHello(x, writes)
	case *of.ErrorMessage:
		if x.ErrorType == of.ErrorExperimenter && (writes || len(x.Data) < 4) {
			return "it knows an experimenter's error as a message of its own, with his number"
		}
	case *of.PacketOut:
		if writes && len(x.Actions) == 0 && len(x.Data) > 0 {
			return "without actions it writes a packet-out's frame 16 bytes too early, and its head over that"
		}
	case of.InstructionExperimenter:
		return "it does not know an experimenter's instruction, and reads a flow-mod with one for ever"
	case of.MultipartExperiment:
		if n := (8 + len(x.Data)) % 16; !writes && n > 0 && n < 8 {
			return "it takes an experimenter's multipart body for several of 16 bytes, of which the last is cut"
		}
	case of.TableProperty:
		if x.Type >= of.TableExperimenter && len(x.Data)%4 != 0 {
			return "it wants an experimenter's table property in words of 4 bytes"
		}
	case of.FieldHeader:
		if writes && (x.ID.Class() == of.ClassExperimenter || x.ID == of.FieldTCPFlags15) {
			return "it names no such field in a table's properties"
		}
	case of.InstructionID:
		if x.Experimenter != 0 {
			return "it keeps no experimenter of an instruction's id"
		}
	case of.ActionID:
		if x.Experimenter != 0 {
			return "it keeps no experimenter of an action's id"
		}
	case of.Band:
		if len(x.Data) > 0 {
			return "it knows no data of an experimenter's meter band"
		}
	}
	return ""
}

func oskenHello(m *of.Hello, writes bool) string {
	if writes && len(m.Versions) > 0 {
		return "it writes no version bitmap"
	}
	for _, v := range m.Versions {
		if v%32 == 31 {
			return "it forgets the highest bit of a word of the version bitmap"
		}
	}
	if n := len(m.Versions); n > 0 && m.Versions[n-1]/32%2 == 1 {
		return "it reads the padding of a version bitmap for ever"
	}
	return ""
}
