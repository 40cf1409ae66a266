//go:build !cgo

package native

// VMECNOut panics: this build has no laws.
func VMECNOut(uint8, bool, bool, uint8) uint8 { panic(withoutC) }

// VMECNHandshake panics: this build has no laws.
func VMECNHandshake(uint8, bool, bool, bool, bool) uint8 { panic(withoutC) }

// VMECNIn panics: this build has no laws.
func VMECNIn(uint8, bool, uint8) uint8 { panic(withoutC) }
