package law

import (
	"net/netip"
	"reflect"
	"testing"
)

type ownInner struct {
	List []int
	Addr netip.Addr
}

type ownEvent struct {
	Name  string
	Frame []byte
	Map   map[string][]int
	Inner *ownInner
	Any   any
	Array [2][]int
	None  *int
	Empty []byte
}

func (*ownEvent) LawEvent() {}

// A copy is equal to the original, and later changes of the original do not show in it.
func TestOwn(t *testing.T) {
	newEvent := func() *ownEvent {
		return &ownEvent{
			Name: "n", Frame: []byte{1, 2}, Map: map[string][]int{"a": {3}}, Inner: &ownInner{List: []int{4}, Addr: netip.MustParseAddr("fe80::1%eth0")},
			Any: []int{5}, Array: [2][]int{{6}, nil}, Empty: []byte{},
		}
	}
	e := newEvent()
	kept := Own[Event](e)
	e.Name, e.Frame[0], e.Map["a"][0], e.Inner.List[0], e.Any.([]int)[0], e.Array[0][0] = "x", 9, 9, 9, 9, 9
	e.Map["b"] = nil
	if want := newEvent(); !reflect.DeepEqual(kept, Event(want)) {
		t.Errorf("%+v, want %+v", kept, want)
	}
	if Own[Event](nil) != nil {
		t.Error("nothing became something")
	}
	g := Grant{Value: 7, Key: Key{Pair: Pair{Peer: netip.MustParseAddr("10.0.0.1")}}}
	if Own[Action](g) != Action(g) {
		t.Error("a grant is another")
	}
}
