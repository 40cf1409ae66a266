package vector

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"
)

// Of returns the fields of a struct that are not 0. The struct has integers, arrays of unsigned ones, and structs
// and arrays of such. A negative integer is written as unsigned, in two's complement of 64 bits. The key of the Go field WindowQ8 is window_q8, of MSSBytes mss_bytes; unexported
// fields are padding.
func Of(structure any) Fields {
	var out Fields
	each(reflect.ValueOf(structure), func(key string, v reflect.Value) {
		if n := number(v); n != 0 {
			out = append(out, Field{key, n})
		}
	})
	return out
}

// Into sets a struct's fields, and all others to 0. It returns an error for a key without a field, or a value
// too large for its field.
func (f Fields) Into(structure any) error {
	v := reflect.ValueOf(structure).Elem()
	v.SetZero()
	at := map[string]reflect.Value{}
	each(v, func(key string, v reflect.Value) { at[key] = v })
	for _, field := range f {
		to, ok := at[field.Key]
		if !ok {
			return fmt.Errorf("%s has no field %s", v.Type(), field.Key)
		}
		if to.CanInt() && !to.OverflowInt(int64(field.Value)) {
			to.SetInt(int64(field.Value))
			continue
		}
		if to.CanInt() || to.OverflowUint(field.Value) {
			return fmt.Errorf("%s=%d does not fit %s", field.Key, field.Value, to.Type())
		}
		to.SetUint(field.Value)
	}
	return nil
}

// number returns an integer as a vector has it.
func number(v reflect.Value) uint64 {
	if v.CanInt() {
		return uint64(v.Int())
	}
	return v.Uint()
}

// each visits the integers of a struct. The key of a field of a struct within it is OUTER_FIELD; in
// the i-th of an array of structs it is OUTERi_FIELD.
func each(v reflect.Value, visit func(key string, v reflect.Value)) {
	for i := range v.NumField() {
		field, name := v.Field(i), v.Type().Field(i)
		if !name.IsExported() || name.Name == "_" {
			continue
		}
		key := snake(name.Name)
		within := func(outer string) func(string, reflect.Value) {
			return func(key string, v reflect.Value) { visit(outer+"_"+key, v) }
		}
		switch {
		case field.Kind() == reflect.Struct:
			each(field, within(key))
		case field.Kind() == reflect.Array && field.Type().Elem().Kind() == reflect.Struct:
			for j := range field.Len() {
				each(field.Index(j), within(key+strconv.Itoa(j)))
			}
		case field.Kind() == reflect.Array && field.Len() > 0 && field.Index(0).CanUint():
			for j := range field.Len() {
				visit(key+"."+strconv.Itoa(j), field.Index(j))
			}
		case field.CanUint(), field.CanInt():
			visit(key, field)
		}
	}
}

// snake turns MSSBytes into mss_bytes and WindowQ8 into window_q8.
func snake(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		upper := unicode.IsUpper(r)
		if upper && i > 0 && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
