//go:build !cgo

package laws

// ACDC returns a law that is refused: this build lacks `acdc`.
func ACDC() Law { return refused() }
