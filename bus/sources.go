package bus

import "embed"

// Sources holds the source files of the bus, its messages, frames, certificates and leases, including tests. A finished run of a lab is
// stored with a digest of the sources that made it.
//
//go:embed *.go inband/*.go lease/*.go pki/*.go weirv1/*.go
var Sources embed.FS
