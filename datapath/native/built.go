//go:build cgo

package native

// Built reports whether this build has the laws. Without cgo it has only their types.
const Built = true
