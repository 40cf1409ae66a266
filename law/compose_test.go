package law

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCompose(t *testing.T) {
	marks := &Spec{Name: "marks", Claims: []Resource{Marking}}
	also := &Spec{Name: "also", Claims: []Resource{ReceiveWindow, Marking, Marking}}
	shim := &Spec{Name: "shim", Claims: []Resource{Shim, ReceiveWindow}}
	other := &Spec{Name: "other", Claims: []Resource{SendRate, Shim}}
	ects := &Spec{Name: "ects", Claims: []Resource{ECN, Shim, ReceiveWindow}}
	windows := &Spec{Name: "windows", Claims: []Resource{ReceiveWindow, SendRate}}
	nothing := &Spec{Name: "nothing"}
	for _, row := range []struct {
		laws []*Spec
		want *ConflictError // nil: no conflict
	}{
		{nil, nil},
		{[]*Spec{marks}, nil},
		{[]*Spec{also}, nil}, // its own twice
		{[]*Spec{marks, shim, windows, nothing}, nil},
		{[]*Spec{windows, windows, nothing, nothing}, nil}, // the smallest counts
		{[]*Spec{marks, also}, &ConflictError{"marks", "also", Marking}},
		{[]*Spec{also, nothing, marks}, &ConflictError{"also", "marks", Marking}},
		{[]*Spec{shim, other}, &ConflictError{"shim", "other", Shim}},
		{[]*Spec{marks, ects, shim}, &ConflictError{"ects", "shim", Shim}},
		{[]*Spec{marks, marks}, &ConflictError{"marks", "marks", Marking}},
	} {
		var names []string
		for _, l := range row.laws {
			names = append(names, l.Name)
		}
		err := Compose(row.laws...)
		var got *ConflictError
		switch {
		case row.want == nil:
			if err != nil {
				t.Errorf("%v: %v", names, err)
			}
		case !errors.As(err, &got) || *got != *row.want:
			t.Errorf("%v: %v, should be %+v", names, err, *row.want)
		case !strings.Contains(err.Error(), got.A) || !strings.Contains(err.Error(), got.B) || !strings.Contains(err.Error(), got.Resource.String()):
			t.Errorf("%v: %q does not name both laws and the resource", names, err)
		}
	}
}

// Laws can run together exactly if each exclusive resource has at most one claimant, in any order.
func TestCompose_OneOwnerEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var laws []*Spec
		owners := map[Resource]int{}
		for i := range rapid.IntRange(0, 5).Draw(t, "laws") {
			l := &Spec{Name: string(rune('a' + i)), Claims: rapid.SliceOfNDistinct(rapid.Map(rapid.Uint8Range(0, uint8(SendRate)), func(r uint8) Resource { return Resource(r) }), 0, 3, rapid.ID[Resource]).Draw(t, "claims")}
			for _, r := range l.Claims {
				if slices.Contains([]Resource{Marking, ECN, Shim, FirstPlace}, r) {
					owners[r]++
				}
			}
			laws = append(laws, l)
		}
		can := true
		for _, n := range owners {
			can = can && n < 2
		}
		if err := Compose(rapid.Permutation(laws).Draw(t, "order")...); (err == nil) != can {
			t.Fatalf("%v, should be possible: %v", err, can)
		}
	})
}
