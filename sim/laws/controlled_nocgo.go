//go:build !cgo

package laws

import "weir/law"

// Controlled refuses a controller's law: hosts carry out its grants with the C of datapath/core.
func Controlled(law.Spec) Law { return refused() }
