package law

import "reflect"

// Own returns a deep copy of an event or an action. A world needs it to keep borrowed memory beyond the step: in a queue, on
// its way to another machine. Memory behind unexported fields is still shared.
func Own[T any](v T) T {
	var out T
	own(reflect.ValueOf(&out).Elem(), reflect.ValueOf(&v).Elem())
	return out
}

func own(out, in reflect.Value) {
	switch in.Kind() {
	case reflect.Pointer:
		if !in.IsNil() {
			out.Set(reflect.New(in.Type().Elem()))
			own(out.Elem(), in.Elem())
		}
	case reflect.Interface:
		if !in.IsNil() {
			v := reflect.New(in.Elem().Type()).Elem()
			own(v, in.Elem())
			out.Set(v)
		}
	case reflect.Slice:
		if !in.IsNil() {
			out.Set(reflect.MakeSlice(in.Type(), in.Len(), in.Len()))
			for i := range in.Len() {
				own(out.Index(i), in.Index(i))
			}
		}
	case reflect.Array:
		for i := range in.Len() {
			own(out.Index(i), in.Index(i))
		}
	case reflect.Map:
		if !in.IsNil() {
			out.Set(reflect.MakeMap(in.Type()))
			for _, k := range in.MapKeys() {
				v := reflect.New(in.Type().Elem()).Elem()
				own(v, in.MapIndex(k))
				out.SetMapIndex(k, v)
			}
		}
	case reflect.Struct:
		out.Set(in)
		for i := range in.NumField() {
			if in.Type().Field(i).IsExported() {
				own(out.Field(i), in.Field(i))
			}
		}
	default:
		out.Set(in)
	}
}
