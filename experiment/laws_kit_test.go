package experiment

// testLaws are the laws of this build, to read files with. Where they are built decides what Plan skips.
var testLaws *Laws

// UseLaws sets testLaws. The list of laws imports this package, so only the package of its external tests can read it.
func UseLaws(laws *Laws) bool {
	testLaws = laws
	return true
}
