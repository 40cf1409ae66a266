//go:build !cgo

package native

// Built tells whether this build has the laws. Without cgo it has only their types.
const Built = false

const withoutC = "native: this build has no C (Built): a world refuses its laws"
