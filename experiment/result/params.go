package result

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"

	"weir/law"
)

// params merges the fields of all laws' configurations, in the experiment's own time and rate, and adds the value
// of each axis under its name. If two laws set a field differently, the later law's is under law.field.
func (b *builder) params() map[string]any {
	out := map[string]any{}
	for _, name := range b.lawNames() {
		for field, value := range fields(unscale(b.Params[name], b.Scale)) {
			if old, taken := out[field]; taken && !reflect.DeepEqual(old, value) {
				field = name + "." + field
			}
			out[field] = value
		}
	}
	for name, value := range b.Axes {
		out[name] = value
	}
	return out
}

// lawNames lists the laws with a configuration: first those of the run in order, then any others.
func (b *builder) lawNames() []string {
	var names, rest []string
	for _, name := range b.Laws {
		if _, ok := b.Params[name]; ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for name := range b.Params {
		if !slices.Contains(names, name) {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	return append(names, rest...)
}

// fields returns the JSON fields of a configuration; none if it is not a JSON object.
func fields(config any) map[string]any {
	text, err := json.Marshal(config)
	if err != nil {
		return nil
	}
	var out map[string]any
	if json.Unmarshal(text, &out) != nil {
		return nil
	}
	return out
}

// unscale copies a configuration with every law.Duration divided by scale and every law.Rate multiplied by it.
func unscale(config any, scale float64) any {
	if config == nil || scale == 1 {
		return config
	}
	return unscaled(reflect.ValueOf(config), scale).Interface()
}

func unscaled(v reflect.Value, scale float64) reflect.Value {
	switch x := v.Interface().(type) {
	case law.Duration:
		return reflect.ValueOf(law.Duration(math.Round(float64(x) / scale)))
	case law.Rate:
		return reflect.ValueOf(law.Rate(math.Round(float64(x) * scale)))
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return v
		}
		p := reflect.New(v.Type().Elem())
		p.Elem().Set(unscaled(v.Elem(), scale))
		return p
	case reflect.Struct:
		out := reflect.New(v.Type()).Elem()
		out.Set(v)
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out.Field(i).Set(unscaled(v.Field(i), scale))
			}
		}
		return out
	case reflect.Map:
		if v.IsNil() {
			return v
		}
		out := reflect.MakeMapWithSize(v.Type(), v.Len())
		for it := v.MapRange(); it.Next(); {
			out.SetMapIndex(it.Key(), unscaled(it.Value(), scale))
		}
		return out
	case reflect.Interface:
		if v.IsNil() {
			return v
		}
		return unscaled(v.Elem(), scale)
	}
	return v
}
