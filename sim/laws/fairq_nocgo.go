//go:build !cgo

package laws

// FairQ returns a law that is refused: this build lacks `fairq`.
func FairQ() Law { return refused() }
