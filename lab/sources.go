package lab

import "embed"

// Sources are the lab's sources, including tests: a digest of them is stored with each finished run.
//
//go:embed *.go bpf/*.c measure/*.go measure/bpf/*.c netstack/*.go traffic/*.go
var Sources embed.FS
