//go:build !cgo

package native

// Mark panics: this build has no laws.
func Mark(MarkConfig, uint32, uint8) MarkVerdict { panic(withoutC) }
