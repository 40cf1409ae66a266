package ring

import (
	"slices"
	"testing"
)

func TestRing(t *testing.T) {
	r := New[int](4)
	if r.Len() != 0 || len(r.Last(9, nil)) != 0 {
		t.Errorf("an empty ring has %v", r.Last(9, nil))
	}
	for i := range 3 {
		*r.Next() = i
	}
	if got := r.Last(9, nil); !slices.Equal(got, []int{2, 1, 0}) {
		t.Errorf("%v", got)
	}
	for i := 3; i < 11; i++ {
		*r.Next() = i
	}
	if got := r.Last(9, nil); !slices.Equal(got, []int{10, 9, 8, 7}) || r.Len() != 4 {
		t.Errorf("%v", got)
	}
	if got := r.Last(1, func(v *int) bool { return *v%2 == 1 }); !slices.Equal(got, []int{9}) {
		t.Errorf("%v", got)
	}
	if got := r.Last(0, nil); len(got) != 0 {
		t.Errorf("%v", got)
	}
	*r.Next() = 11
	if got := r.Last(9, nil); !slices.Equal(got, []int{11, 10, 9, 8}) {
		t.Errorf("%v", got)
	}
}
