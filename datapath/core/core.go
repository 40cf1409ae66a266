// Package core holds the laws that act on every packet, as C headers without includes: compiled into
// the kernel programs, into the simulator (package native), and followed by the hardware. The headers
// are the specification; the files in testdata are its examples, which every world must reproduce to
// the bit.
package core

import "embed"

// Headers are the laws' sources. Package native imports this package for their sake: Go's build
// cache does not see a header outside a package's own directory, and would keep a stale law.
//
//go:embed *.h */*.h
var Headers embed.FS

// Vectors are the test vectors, in the format that package vector describes.
//
//go:embed testdata/*.vec
var Vectors embed.FS
