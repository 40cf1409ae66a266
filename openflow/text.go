package openflow

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// HexBytes is bytes that print in hexadecimal, as text and as JSON.
type HexBytes []byte

// String returns two digits per byte; "-" for none.
func (h HexBytes) String() string {
	if len(h) == 0 {
		return "-"
	}
	return hex.EncodeToString(h)
}

// MarshalText returns two digits per byte.
func (h HexBytes) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h)), nil }

// JSON returns a whole message as one JSON object: type, xid, and the message under "body".
func JSON(h Header, m Message) ([]byte, error) {
	b, err := json.Marshal(struct {
		Type Type    `json:"type"`
		XID  uint32  `json:"xid"`
		Body Message `json:"body"`
	}{m.MessageType(), h.XID, m})
	if err != nil {
		return nil, fmt.Errorf("write %s as JSON: %w", m.MessageType(), err)
	}
	return b, nil
}

// text prints a message with its fields' JSON names. Printing is for people, so reflection is fast enough.
func text(m Message) string {
	b := textFields([]byte(m.MessageType().String()), reflect.ValueOf(m).Elem())
	return string(b)
}

func textFields(b []byte, v reflect.Value) []byte {
	for i := range v.NumField() {
		name, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		f := v.Field(i)
		empty := f.IsZero() || (f.Kind() == reflect.Slice && f.Len() == 0)
		if name == "-" || (f.Kind() == reflect.Interface && f.IsNil()) || (option == "omitempty" && empty) {
			continue
		}
		if len(b) > 0 && b[len(b)-1] != '{' {
			b = append(b, ' ')
		}
		b = append(b, name...)
		b = append(b, '=')
		switch {
		case name == "datapath_id":
			b = fmt.Appendf(b, "%016x", f.Uint())
		case name == "cookie" || name == "cookie_mask":
			b = fmt.Appendf(b, "%#x", f.Uint())
		case name == "buffer_id" && f.Uint() == uint64(NoBuffer):
			b = append(b, "NO_BUFFER"...)
		default:
			b = textValue(b, f)
		}
	}
	return b
}

func textValue(b []byte, v reflect.Value) []byte {
	if s, ok := v.Interface().(fmt.Stringer); ok {
		return append(b, s.String()...)
	}
	switch v.Kind() {
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool())
	case reflect.String:
		return strconv.AppendQuote(b, v.String())
	case reflect.Interface, reflect.Pointer:
		return textValue(b, v.Elem())
	case reflect.Struct:
		return append(textFields(append(b, '{'), v), '}')
	case reflect.Slice, reflect.Array:
		b = append(b, '[')
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			b = textValue(b, v.Index(i))
		}
		return append(b, ']')
	}
	return strconv.AppendUint(b, v.Uint(), 10)
}
