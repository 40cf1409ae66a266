package openflow_test

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	of "weir/openflow"
	"weir/openflow/oftest"
)

// tsharkNames are our names where they are not the last part of tshark's; "" is not compared.
var tsharkNames = map[string]string{
	"version": "", "xid": "", "class": "", "field": "", "hm": "", "instruction.length": "", "undecoded": "", "body": "",
	"pad": "", "pad2": "", "pad3": "", "length": "", "len": "", "acts_len": "", "data": "", "bitmap": "",
	"port.sate": "state", "port.current": "curr", "port_stats.rx_frame_error": "rx_frame_err", "port_stats.rx_over_error": "rx_over_err",
	"port_stats.rx_crc_error": "rx_crc_err", "table_stats.match_count": "matched_count", "switch_features_reserved": "reserved",
	"write_metadata.value": "metadata", "write_metadata.mask": "metadata_mask", "openflow_v4.type": "", "match.type": "",
	"packet_in_mask.master": "packet_in_mask", "packet_in_mask.slave": "packet_in_mask",
	"port_status_mask.master": "port_status_mask", "port_status_mask.slave": "port_status_mask",
	"flow_removed_mask.master": "flow_removed_mask", "flow_removed_mask.slave": "flow_removed_mask",
	"max_groups.all": "max_groups", "max_groups.select": "max_groups", "max_groups.indirect": "max_groups", "max_groups.ff": "max_groups",
	"actions.all": "actions", "actions.select": "actions", "actions.indirect": "actions", "actions.ff": "actions",
	"state.link_down": "", "state.blocked": "", "state.live": "", "band_types.drop": "", "band_types.dscp_remark": "", // bits
	"oxm.undecoded": "oxm_raw", "hello_element.type": "", "next_tables.next_table_id": "next_table_ids",
}

// tsharkName returns our name of a field of tshark's, "" for one that is not compared.
func tsharkName(name string) string {
	if !strings.HasPrefix(name, "openflow_v4.") && name != "openflow_v4.switch_features_reserved" {
		return ""
	}
	parts := strings.Split(name, ".")
	last := parts[len(parts)-1]
	if strings.HasPrefix(last, "value") && strings.Contains(name, ".oxm") {
		return "oxm_value"
	}
	if strings.HasSuffix(last, "mask") && strings.Contains(name, ".oxm") {
		return "oxm_mask"
	}
	if ours, ok := tsharkNames[parts[len(parts)-2]+"."+last]; ok {
		return ours
	}
	if ours, ok := tsharkNames[last]; ok {
		return ours
	}
	return last
}

// trimHex takes zeros away at both ends: of numbers in front, of texts behind.
func trimHex(s string) string {
	s = strings.TrimLeft(s, "0")
	for strings.HasSuffix(s, "00") {
		s = strings.TrimSuffix(s, "00")
	}
	return s
}

// tsharkWants lists our fields so, in the order of the wire.
func tsharkWants(m of.Message) []string {
	if e, ok := m.(*of.ErrorMessage); ok {
		list := flatNumber(flatNumber(nil, "type", uint64(e.ErrorType)), "code", uint64(e.Code))
		if e.ErrorType == of.ErrorExperimenter {
			list = flatNumber(list, "experimenter", uint64(binary.BigEndian.Uint32(e.Data)))
		}
		return list
	}
	if _, ok := m.(*of.Hello); ok { // its bitmap is one number to tshark
		return nil
	}
	return flat(nil, "", reflect.ValueOf(m).Elem())
}

func flatNumber(list []string, name string, v uint64) []string {
	return append(list, name+"="+trimHex(fmt.Sprintf("%016x", v)))
}

func flat(list []string, name string, v reflect.Value) []string {
	switch x := v.Interface().(type) {
	case of.HexBytes:
		return list
	case of.MAC:
		return append(list, name+"="+trimHex(fmt.Sprintf("%x", x[:])))
	case of.Field:
		return flatField(list, &x)
	case of.FieldHeader: // tshark does not show the experimenter
		return list
	case of.ActionID:
		return flatID(list, uint16(x.Type), x.Experimenter)
	case of.InstructionID:
		return flatID(list, uint16(x.Type), x.Experimenter)
	case of.Action:
		if name != "in action" {
			list = flatNumber(list, "type", uint64(x.ActionType()))
			return flat(list, "in action", reflect.ValueOf(x))
		}
	case of.Instruction:
		if name != "in instruction" {
			list = flatNumber(list, "type", uint64(x.InstructionType()))
			return flat(list, "in instruction", reflect.ValueOf(x))
		}
	}
	switch v.Kind() {
	case reflect.Bool:
		if name == "more" {
			more, _ := strconv.ParseUint(map[bool]string{true: "1", false: "0"}[v.Bool()], 10, 64)
			return flatNumber(list, "flags", more)
		}
		return list
	case reflect.String:
		return append(list, name+"="+trimHex(fmt.Sprintf("%x", v.String())))
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return list
		}
		return flat(list, name, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if name := oftest.FieldName(v, i); name != "" {
				list = flat(list, name, v.Field(i))
			}
		}
		return list
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			list = flat(list, name, v.Index(i))
		}
		return list
	}
	return flatNumber(list, name, v.Uint())
}

func flatID(list []string, typ uint16, experimenter uint32) []string {
	list = flatNumber(list, "type", uint64(typ))
	if typ == 0xffff {
		list = flatNumber(list, "experimenter", uint64(experimenter))
	}
	return list
}

func flatField(list []string, f *of.Field) []string {
	if f.ID.Class() == of.ClassExperimenter {
		list = flatNumber(list, "experimenter", uint64(f.ID.Experimenter()))
	}
	switch { // tshark shows less of the fields of others
	case f.ID.Class() == of.ClassNXM1: // only that there is one
		return append(list, "oxm_raw=")
	case f.ID.Class() == of.ClassExperimenter && f.HasMask: // value and mask in one
		return append(list, "oxm_value="+trimHex(fmt.Sprintf("%x%x", f.Value(), f.Mask())))
	}
	list = append(list, "oxm_value="+trimHex(fmt.Sprintf("%x", f.Value())))
	if f.HasMask {
		list = append(list, "oxm_mask="+trimHex(fmt.Sprintf("%x", f.Mask())))
	}
	return list
}

// tsharkCannotRead returns the fault or the gap of tshark 4.0.17 with a field.
func tsharkCannotRead(m of.Message) string {
	return limit(reflect.ValueOf(m), tsharkPart)
}

func tsharkPart(x any) string {
	if bands, ok := x.([]of.Band); ok {
		for i := range bands {
			if bands[i].Type == of.BandExperimenter {
				return "it takes all that follows the head of an experimenter's meter band for its data"
			}
		}
	}
	return ""
}
