package experiment

import "embed"

// Sources are those of this package that a run depends on beside what Plan makes of its file: the schedule of flows, tests
// among them. A finished run is filed with a digest of those that it was made by.
//
//go:embed laws.go workload/*.go
var Sources embed.FS
