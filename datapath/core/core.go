// Package core has the laws that act on every packet, as C headers without includes. They are compiled into the
// kernel programs and into the simulator (package native), and the hardware follows them. The headers are the
// specification. The files in testdata are its examples, which every world must reproduce to the bit.
package core

import "embed"

// Headers are the laws' sources. Package native imports this package because of them: Go's build cache does not
// see a header outside a package's own directory, and would keep an outdated law.
//
//go:embed *.h */*.h
var Headers embed.FS

// Vectors are the test vectors, in the format that package vector describes.
//
//go:embed testdata/*.vec
var Vectors embed.FS
