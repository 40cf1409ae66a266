//go:build !cgo

package lawtrace

import "errors"

// Replay needs the native law, which is C.
func (t *Trace) Replay() (*Report, error) {
	return nil, errors.New("law trace: this build has no native law: build it with cgo")
}
