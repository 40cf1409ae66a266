//go:build !cgo

package laws

// FairQ is `fairq`, which this build does not have.
func FairQ() Law { return refused() }
