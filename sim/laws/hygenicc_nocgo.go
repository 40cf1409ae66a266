//go:build !cgo

package laws

// HyGenICC returns a law that this build refuses.
func HyGenICC() Law { return refused() }
