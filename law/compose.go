package law

import "fmt"

// ConflictError reports two laws that cannot run at one place.
type ConflictError struct {
	A, B     string // their names; the same for a law that is given twice
	Resource Resource
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("laws %s and %s cannot run at one place: both claim %s, which has one owner; remove one of them, or put them at different places",
		e.A, e.B, e.Resource)
}

// Compose checks that laws can run together at one place: a port of a switch, a guest, a whole fabric. An exclusive
// resource has one owner there. For any other resource the smallest valid grant counts, so any number of laws may claim it.
// The error is a ConflictError with the first two laws, in the order given, that claim the same exclusive resource.
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
