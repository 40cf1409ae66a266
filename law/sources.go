package law

import "embed"

// Sources holds the source files of all laws and of their common packages, including tests. A finished run is stored with a
// digest of the sources that made it.
//
//go:embed *.go */*.go
var Sources embed.FS
