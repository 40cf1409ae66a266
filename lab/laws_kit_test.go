package lab

import (
	"context"

	"weir/experiment"
)

// testLaws are the laws of this build, to read files with; testWorks are the lab's implementations of them.
var (
	testLaws  *experiment.Laws
	testWorks Laws
)

// UseLaws sets both. The list of laws imports this package, so only the external test package can read it.
func UseLaws(laws *experiment.Laws, works Laws) bool {
	testLaws, testWorks = laws, works
	return true
}

// Enforce is EnforceContext of a caller that waits until it is done.
func (l *Lab) Enforce(r *experiment.Run, ls Laws) (stop func() error, err error) {
	return l.EnforceContext(context.Background(), r, ls)
}
