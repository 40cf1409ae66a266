//go:build !cgo

package native

// Mark is not in this build.
func Mark(MarkConfig, uint32, uint8) MarkVerdict { panic(withoutC) }
