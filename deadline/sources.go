package deadline

import "embed"

// Sources holds the source files of this package, including tests. A finished run of a lab is stored with a digest of the sources that
// made it.
//
//go:embed *.go
var Sources embed.FS
