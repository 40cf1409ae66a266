// Package datapath is the folder of Weir's kernel programs. Package attach loads and attaches them, each law has a
// package of its own, and the programs are C in bpf/ around the laws in core/. The objects that clang-16 compiles from
// them are committed: building Weir needs no C compiler for them.
package datapath

import "embed"

// Sources are those of the kernel programs, of the packages that load them and of package native, tests among them: a
// finished run is filed with a digest of those that it was made by. Package core has its own.
//
//go:embed */*.go */*/*.go bpf/*/*.c bpf/*/*.h
var Sources embed.FS
