package experiment

import "embed"

// Sources are this package's sources that a run depends on, in addition to the plan: the schedule of flows, with
// its tests. The digest of the sources is stored with each finished run.
//
//go:embed laws.go workload/*.go
var Sources embed.FS
