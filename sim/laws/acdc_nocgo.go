//go:build !cgo

package laws

// ACDC is `acdc`, which this build does not have.
func ACDC() Law { return refused() }
