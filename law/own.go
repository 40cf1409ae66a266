package law

import (
	"reflect"
	"sync"
)

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
			reflect.Copy(out, in)
			ownElements(out, in)
		}
	case reflect.Array:
		out.Set(in)
		ownElements(out, in)
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
		for _, i := range layoutOf(in.Type()).fields {
			own(out.Field(i), in.Field(i))
		}
	default:
		out.Set(in)
	}
}

// ownElements copies what the elements of a slice or an array point at. The elements themselves are copied.
func ownElements(out, in reflect.Value) {
	if layoutOf(in.Type().Elem()).plain {
		return
	}
	for i := range in.Len() {
		own(out.Index(i), in.Index(i))
	}
}

// layout lists the fields of a type whose memory is elsewhere. An event of a switch has hundreds of numbers, and they need no reflection.
type layout struct {
	plain  bool  // none
	fields []int // of a struct: exported, and not plain
}

var layouts sync.Map // reflect.Type -> *layout

func layoutOf(t reflect.Type) *layout {
	if l, known := layouts.Load(t); known {
		return l.(*layout)
	}
	l := &layout{}
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map:
	case reflect.Array:
		l.plain = layoutOf(t.Elem()).plain
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && !layoutOf(f.Type).plain {
				l.fields = append(l.fields, i)
			}
		}
		l.plain = len(l.fields) == 0
	default:
		l.plain = true
	}
	layouts.Store(t, l)
	return l
}
