package datapath

import "embed"

// Sources are this package's, those of the kernel programs and of package native, tests among them: a finished run is
// filed with a digest of those that it was made by. Package core has its own.
//
//go:embed *.go bpf/*.c bpf/*.h native/*.go
var Sources embed.FS
