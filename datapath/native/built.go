//go:build cgo

package native

// Built tells whether this build has the laws. Without cgo it has only their types.
const Built = true
