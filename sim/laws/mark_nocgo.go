//go:build !cgo

package laws

// Mark is `ecn` and `red`, which this build does not have.
func Mark() Law { return refused() }
