// Package lawtest checks the rules of package law for every law: it keeps no borrowed memory, it appends to the given slice,
// and equal events give equal actions.
package lawtest

import (
	"reflect"
	"time"

	"weir/law"
)

// TB is the part of a test that lawtest needs: *testing.T, *testing.B and *rapid.T have it.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Checked wraps a law. Each event that the law gets is a copy, which is overwritten after Step has returned. A second law of
// the same kind, the twin, gets the same events in memory that it may keep. If the two decide differently, the law kept
// borrowed memory, or depends on more than its events, and the test fails.
//
// The world gets copies of the actions. They are overwritten when the next Step begins, so that a world that keeps the
// memory of an action fails as well.
func Checked(t TB, l, twin law.Law) law.Law { return &checked{t: t, law: l, twin: twin} }

type checked struct {
	t         TB
	law, twin law.Law
	given     []law.Action // with the last step
}

// other is an action of another law, in front of the law's own: a law must append.
type other struct{ N int }

func (other) LawAction() {}

func (l *checked) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	l.t.Helper()
	for i := range l.given {
		overwrite(reflect.ValueOf(l.given[i]))
	}
	mine := law.Own(e)
	got := l.law.Step(now, mine, []law.Action{other{1}})
	overwrite(reflect.ValueOf(mine))
	want := l.twin.Step(now, law.Own(e), []law.Action{other{1}})
	if len(got) == 0 || got[0] != (other{1}) {
		l.t.Fatalf("at %v, %T: the law does not append: %v", now, e, got)
	}
	l.given = make([]law.Action, 0, len(got))
	for i, a := range got[1:] {
		if i+1 >= len(want) || !reflect.DeepEqual(a, want[i+1]) {
			l.t.Fatalf("at %v, %T: action %d is %+v; with events of its own the law gives %+v", now, e, i, a, want[1:])
		}
		l.given = append(l.given, law.Own(a))
	}
	if len(got) != len(want) {
		l.t.Fatalf("at %v, %T: %d actions; with events of its own the law gives %+v", now, e, len(got)-1, want[1:])
	}
	return append(out, l.given...)
}

func (l *checked) Wake() time.Duration {
	l.t.Helper()
	wake := l.law.Wake()
	if own := l.twin.Wake(); wake != own {
		l.t.Fatalf("wakes at %v; with events of its own at %v", wake, own)
	}
	return wake
}

// overwrite changes everything that a value refers to: numbers, texts, the elements of slices and maps. Structs with unexported
// fields become zero.
func overwrite(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			overwrite(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			overwrite(v.Index(i))
		}
	case reflect.Map:
		v.Clear()
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				overwrite(v.Field(i))
			} else if v.CanSet() && v.Type().Field(i).Name != "_" {
				v.SetZero()
				return
			}
		}
	}
	if !v.CanSet() {
		return
	}
	switch {
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.CanInt():
		v.SetInt(^v.Int())
	case v.CanUint():
		v.SetUint(^v.Uint())
	case v.CanFloat():
		v.SetFloat(-1 - v.Float())
	case v.Kind() == reflect.String:
		v.SetString("overwritten")
	}
}
