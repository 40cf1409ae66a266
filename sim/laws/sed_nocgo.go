//go:build !cgo

package laws

// SED returns the law `sed`, which this build refuses.
func SED() Law { return refused() }

// RSED returns the law `rsed`, which this build refuses.
func RSED() Law { return refused() }
