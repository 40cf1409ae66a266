package lab

import "embed"

// Sources are the lab's, tests among them: a finished run is filed with a digest of those that it was made by.
//
//go:embed *.go bpf/*.c measure/*.go measure/bpf/*.c netstack/*.go traffic/*.go
var Sources embed.FS
