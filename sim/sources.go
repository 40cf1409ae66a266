package sim

import "embed"

// Sources are the simulator's source files, including tests. A finished run is stored with a digest of the sources that
// produced it.
//
//go:embed *.go control/*.go event/*.go network/*.go laws/*.go tcp/*.go
var Sources embed.FS
