package experiment

// testLaws are the laws of this build, to read files with. The worlds that have them determine what Plan skips.
var testLaws *Laws

// UseLaws sets testLaws. The list of laws imports this package, so only the external test package can read it.
func UseLaws(laws *Laws) bool {
	testLaws = laws
	return true
}
