#!/usr/bin/env bash
# Generates weir.pb.go with protoc and the pinned protoc-gen-go.
set -euo pipefail
plugin=$(go tool -n protoc-gen-go)
# The generated file names the versions of protoc and of the plugin. protoc's is removed, so that another Debian generates
# the same file.
protoc --plugin=protoc-gen-go="$plugin" --go_out=. --go_opt=paths=source_relative weir.proto
sed -i '/^\/\/ \(- \)\?\tprotoc  *v/d; /^\/\/ *- *protoc  *v/d' weir.pb.go
