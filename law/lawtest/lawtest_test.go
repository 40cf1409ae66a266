package lawtest

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/law"
	"weir/law/fabric"
)

// failed stands in for a test that must fail.
type failed struct{ why string }

func (*failed) Helper() {}
func (f *failed) Fatalf(format string, args ...any) {
	f.why = fmt.Sprintf(format, args...)
	panic(f)
}

// keeper is a law that sends each frame again one step later.
type keeper struct {
	right, restarts bool
	last            []byte
}

func (k *keeper) Step(_ time.Duration, e law.Event, out []law.Action) []law.Action {
	if k.restarts {
		out = out[:0]
	}
	if k.last != nil {
		out = append(out, fabric.PacketOut{Frame: k.last})
	}
	if p, is := e.(*fabric.PacketIn); is {
		k.last = p.Frame
		if k.right {
			k.last = slices.Clone(p.Frame)
		}
	}
	return out
}
func (*keeper) Wake() time.Duration { return 0 }

func TestChecked(t *testing.T) {
	for _, row := range []struct {
		what string
		law  func() law.Law
		why  string // part of the failure; "": none
	}{
		{"copies", func() law.Law { return &keeper{right: true} }, ""},
		{"keeps borrowed memory", func() law.Law { return &keeper{} }, "with events of its own"},
		{"does not append", func() law.Law { return &keeper{right: true, restarts: true} }, "does not append"},
	} {
		f := &failed{}
		func() {
			defer func() {
				if r := recover(); r != nil && r != any(f) {
					panic(r)
				}
			}()
			l := Checked(f, row.law(), row.law())
			for n := range byte(3) {
				frame := []byte{n}
				for _, a := range l.Step(0, &fabric.PacketIn{Frame: frame}, nil) {
					if got := a.(fabric.PacketOut).Frame; !slices.Equal(got, []byte{n - 1}) {
						t.Errorf("%s: frame %v", row.what, got)
					}
				}
				if !slices.Equal(frame, []byte{n}) {
					t.Errorf("%s: the world's own frame was changed", row.what)
				}
			}
		}()
		if (f.why == "") != (row.why == "") || !strings.Contains(f.why, row.why) {
			t.Errorf("%s: %q, should have %q", row.what, f.why, row.why)
		}
	}
}

// The memory of an action is overwritten when the next step begins.
func TestChecked_ActionsOfTheLastStep(t *testing.T) {
	l := Checked(t, &keeper{right: true}, &keeper{right: true})
	l.Step(0, &fabric.PacketIn{Frame: []byte{5}}, nil)
	kept := l.Step(0, law.Tick{}, nil)[0].(fabric.PacketOut)
	if kept.Frame[0] != 5 {
		t.Errorf("%v", kept)
	}
	l.Step(0, law.Tick{}, nil)
	if kept.Frame[0] == 5 {
		t.Error("a world that keeps an action's frame does not fail")
	}
}

// All memory of an event is copied, and overwritten.
func TestCopiedAndOverwritten(t *testing.T) {
	type deep struct {
		fabric.PacketIn
		More  []*fabric.Counters
		Names map[string][]int
		Peer  netip.Addr
		Any   any
		Kinds [2]fabric.Kind
	}
	e := &deep{
		PacketIn: fabric.PacketIn{At: law.Port{Switch: 1, N: 2}, Frame: []byte{1, 2}}, More: []*fabric.Counters{{Port: 3}, nil},
		Names: map[string][]int{"a": {1}}, Peer: netip.MustParseAddr("10.0.0.1"), Any: []int{7}, Kinds: [2]fabric.Kind{1, 2},
	}
	c := law.Own(e)
	text := func() string {
		return fmt.Sprint(e.PacketIn, *e.More[0], e.More[1], e.Names, e.Peer, e.Any, e.Kinds)
	}
	before := text()
	inner, list := c.More[0], c.Any.([]int)
	overwrite(reflect.ValueOf(c))
	if after := text(); after != before {
		t.Errorf("%s, was %s: the copy is not one", after, before)
	}
	if c.At.Switch == 1 || c.At.N == 2 || c.Frame[0] == 1 || inner.Port == 3 || len(c.Names) != 0 || c.Peer.IsValid() || list[0] == 7 || c.Kinds[1] == 2 {
		t.Errorf("not overwritten: %+v", c)
	}
}
