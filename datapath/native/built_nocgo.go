//go:build !cgo

package native

// Built reports whether this build has the laws. Without cgo it has only their types.
const Built = false

const withoutC = "native: this build has no laws (Built is false): build it with cgo and a C compiler"
