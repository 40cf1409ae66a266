package lab

import "weir/experiment"

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
