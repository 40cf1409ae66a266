package weirv1

// Needs Debian's protobuf-compiler (make deps-test). The version of protoc-gen-go is pinned in go.mod.
//go:generate bash generate.sh
