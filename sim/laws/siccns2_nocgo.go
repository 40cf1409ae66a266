//go:build !cgo

package laws

// SICCNS2 returns a law that is refused: this build lacks `siccns2`.
func SICCNS2() Law { return refused() }
