package law

import "embed"

// Sources are those of all laws and of what they share, tests among them: a finished run is filed with a digest of those
// that it was made by.
//
//go:embed *.go */*.go
var Sources embed.FS
