// Package lawtest holds a law against what package law asks of every law: it keeps nothing that was lent, appends to what
// it is given, and gives the same actions for the same events.
package lawtest

import (
	"reflect"
	"time"

	"weir/law"
)

// TB is what a test has that fails: *testing.T, *testing.B or *rapid.T.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Lent wraps a law. Each event that the law gets is a copy that is overwritten when Step has returned. Its twin, which is
// made alike, gets the same events and may keep them: when the two decide differently, the law kept what was lent, or does
// not follow from its events alone, and the test fails.
//
// The world gets copies of the actions. They are overwritten when the next Step begins, so a world that keeps what an
// action points at is found, too.
func Lent(t TB, l, twin law.Law) law.Law { return &lent{t: t, law: l, twin: twin} }

type lent struct {
	t         TB
	law, twin law.Law
	given     []law.Action // with the last step
}

// other is in front of a law's actions: a law appends to those of others.
type other struct{ N int }

func (other) LawAction() {}

func (l *lent) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
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

func (l *lent) Wake() time.Duration {
	l.t.Helper()
	wake := l.law.Wake()
	if own := l.twin.Wake(); wake != own {
		l.t.Fatalf("wakes at %v; with events of its own at %v", wake, own)
	}
	return wake
}

// overwrite changes all that a value leads to: numbers, texts, the elements of slices and maps. Structs whose fields are
// not exported become zero.
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
			} else if v.CanSet() {
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
