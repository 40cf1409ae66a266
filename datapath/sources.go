// Package datapath is the folder of Weir's kernel programs. Package attach loads and attaches them. Each law
// has a package of its own. The programs are C in bpf/ around the laws in core/. The objects that clang-16
// compiles from them are committed, so that building Weir needs no C compiler for them.
package datapath

import "embed"

// Sources has the sources of the kernel programs, of the packages that load them and of package native, tests
// included. A finished run records their digest. Package core embeds its own sources.
//
//go:embed */*.go */*/*.go bpf/*/*.c bpf/*/*.h native/*.h
var Sources embed.FS
