//go:build !cgo

package native

// VMECNOut panics: this build has no laws.
func VMECNOut(uint8, bool, bool, uint8) uint8 { panic(withoutC) }

// VMECNIn panics: this build has no laws.
func VMECNIn(uint8, bool, uint8) uint8 { panic(withoutC) }
