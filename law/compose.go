package law

import "fmt"

// ConflictError is two laws that cannot work at one place.
type ConflictError struct {
	A, B     string // their names; the same for a law that is given twice
	Resource Resource
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("laws %s and %s cannot work at one place: both claim %s, which has one owner; take one of them out, or put them at different places",
		e.A, e.B, e.Resource)
}

// Compose tells whether laws can work together at one place: a port of a switch, a guest, a whole fabric. An exclusive
// resource has one owner there. Of any other resource the smallest of the live grants counts, so any number may claim it. It
// fails with a ConflictError that names the first two laws, in the order given, that claim the same exclusive resource.
func Compose(laws ...*Spec) error {
	owner := map[Resource]*Spec{}
	for _, l := range laws {
		mine := map[Resource]bool{} // a law may list a resource twice
		for _, r := range l.Claims {
			if !r.Exclusive() || mine[r] {
				continue
			}
			mine[r] = true
			if o := owner[r]; o != nil {
				return &ConflictError{o.Name, l.Name, r}
			}
			owner[r] = l
		}
	}
	return nil
}
