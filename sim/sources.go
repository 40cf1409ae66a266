package sim

import "embed"

// Sources are the simulator's, tests among them: a finished run is filed with a digest of those that it was made by.
//
//go:embed *.go event/*.go network/*.go laws/*.go tcp/*.go
var Sources embed.FS
