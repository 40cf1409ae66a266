package oftest

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	of "weir/openflow"
)

// OskenPython returns a Python that has os-ken, as scripts/osken leaves it. Without one the test is skipped, but fails
// where OSKEN_PYTHON names one. With -short the test is skipped: it starts many Pythons.
func OskenPython(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short (make check): starts other programs for a minute; make test runs it")
	}
	python := os.Getenv("OSKEN_PYTHON")
	if python == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Skip("no os-ken, because there is no cache folder to find it in: nothing was compared: ", err)
		}
		python = filepath.Join(cache, "weir", "os-ken-4.2.2", "bin", "python")
	}
	if err := exec.Command(python, "-c", "import os_ken.ofproto.ofproto_v1_3_parser").Run(); err != nil {
		if os.Getenv("OSKEN_PYTHON") != "" {
			t.Fatalf("OSKEN_PYTHON=%s has no os-ken: %v", python, err)
		}
		t.Skipf("%s has no os-ken (%v): nothing was compared; scripts/osken installs it", python, err)
	}
	return python
}

// OskenFields returns a message as testdata/osken.py does: fields by name, numbers as they are on the wire.
func OskenFields(m of.Message) any {
	fields := plainStruct(reflect.ValueOf(m).Elem())
	switch m := m.(type) {
	case *of.ErrorMessage:
		if m.ErrorType == of.ErrorExperimenter { // which os-ken takes apart
			fields["exp_type"], fields["experimenter"] = fields["code"], number(uint64(binary.BigEndian.Uint32(m.Data)))
			fields["data"] = fmt.Sprintf("%x", []byte(m.Data[4:]))
			delete(fields, "code")
		}
	case *of.SetAsync, *of.GetAsyncReply:
		return fields["masks"]
	case *of.FeaturesReply:
		delete(fields, "reserved") // which os-ken does not keep
	case *of.Hello:
		return map[string]any{"versions": plainValue(reflect.ValueOf(m.Versions))}
	}
	return fields
}

// OskenJSON reads what testdata/osken.py wrote: JSON with its numbers unchanged, and addresses in one form.
func OskenJSON(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("%s: %w", b, err)
	}
	return oneForm(v), nil
}

func oneForm(v any) any {
	switch v := v.(type) {
	case string:
		if a, err := netip.ParseAddr(v); err == nil {
			return a.String()
		}
	case []any:
		for i := range v {
			v[i] = oneForm(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = oneForm(v[k])
		}
	}
	return v
}

func plainStruct(v reflect.Value) map[string]any {
	out := map[string]any{}
	for i := range v.NumField() {
		name, f := FieldName(v, i), v.Field(i)
		if name == "" || (f.Kind() == reflect.Interface && f.IsNil()) {
			continue
		}
		out[name] = plainValue(f)
	}
	switch x := v.Interface().(type) {
	case of.Action:
		out["type"] = number(uint64(x.ActionType()))
		delete(out, "mpls") // which the type says
	case of.Instruction:
		out["type"] = number(uint64(x.InstructionType()))
		if x.InstructionType() == of.InstructionTypeClearActions { // in os-ken one of three with actions
			out["actions"] = []any{}
		}
	}
	return out
}

// FieldName returns the name of a struct's field in JSON; "" for one that a message of its type does not have.
func FieldName(v reflect.Value, i int) string {
	name, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
	if name == "-" || (option == "omitempty" && isEmpty(v.Field(i)) && !optionalButThere(v, name)) {
		return ""
	}
	return name
}

// isEmpty is what encoding/json leaves out.
func isEmpty(v reflect.Value) bool { return v.IsZero() || (v.Kind() == reflect.Slice && v.Len() == 0) }

// optionalButThere lists the fields that os-ken prints for a struct's type although they may be zero and left out.
func optionalButThere(v reflect.Value, name string) bool {
	switch x := v.Interface().(type) {
	case of.Band:
		return (name == "prec_level" && x.Type == of.BandDSCPRemark) || (name == "experimenter" && x.Type == of.BandExperimenter)
	case of.QueueProperty:
		return (name == "rate") == (x.Property != of.QueueExperimenter)
	case of.TableProperty:
		switch {
		case x.Type >= of.TableExperimenter:
			return name == "experimenter" || name == "exp_type" || name == "data"
		case x.Type <= of.TableInstructionsMiss:
			return name == "instruction_ids"
		case x.Type <= of.TableNextTablesMiss:
			return name == "next_table_ids"
		case x.Type <= of.TableApplyActionsMiss:
			return name == "action_ids"
		}
		return name == "oxm_ids"
	}
	return false
}

func number(v uint64) json.Number { return json.Number(strconv.FormatUint(v, 10)) }

func plainValue(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case of.HexBytes:
		return fmt.Sprintf("%x", []byte(x))
	case of.MAC:
		return x.String()
	case of.Field:
		return plainField(&x)
	case of.FieldHeader:
		name := oskenFieldName(x.ID)
		if x.ID.Class() == of.ClassExperimenter { // os-ken omits the experimenter from the name here
			name = fmt.Sprintf("field_%d", int(x.ID.Class())<<7|int(x.ID.Number()))
		}
		return []any{name, x.HasMask, number(uint64(x.Length))}
	}
	switch v.Kind() {
	case reflect.Bool:
		return v.Bool()
	case reflect.String:
		return v.String()
	case reflect.Interface, reflect.Pointer:
		return plainValue(v.Elem())
	case reflect.Struct:
		return plainStruct(v)
	case reflect.Slice, reflect.Array:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = plainValue(v.Index(i))
		}
		return list
	}
	return number(v.Uint())
}

// plainField returns name, value and mask as os-ken's users see them.
func plainField(f *of.Field) []any {
	value := func(b []byte) any {
		name := f.ID.String()
		switch {
		case f.ID == of.FieldTCPFlags15:
			return base64.StdEncoding.EncodeToString(b)
		case len(b) == 6:
			return of.MAC(b).String()
		case len(b) == 16 || strings.HasPrefix(name, "ipv4") || name == "arp_spa" || name == "arp_tpa":
			a, _ := netip.AddrFromSlice(b)
			return a.String()
		}
		var v uint64
		for _, c := range b {
			v = v<<8 | uint64(c)
		}
		return number(v)
	}
	if !f.HasMask {
		return []any{oskenFieldName(f.ID), value(f.Value()), nil}
	}
	return []any{oskenFieldName(f.ID), value(f.Value()), value(f.Mask())}
}

// oskenFieldName returns os-ken's name of a field.
func oskenFieldName(id of.FieldID) string {
	switch id {
	case of.FieldTCPFlagsNXM:
		return "tcp_flags_nxm"
	case of.FieldTCPFlags15: // of OpenFlow 1.5, which its reader of 1.3 does not know
		return fmt.Sprintf("field_%d", int(id.Class())<<7|int(id.Number()))
	}
	return id.String()
}
