package openflow

import (
	"errors"
	"fmt"
)

// The faults of a message. [DecodeError] and [EncodeError] wrap one of them.
var (
	ErrTruncated = errors.New("the bytes end too early")
	ErrLength    = errors.New("a wrong length")
	ErrVersion   = errors.New("not OpenFlow 1.3")
	ErrUnknown   = errors.New("an unknown type")
	ErrValue     = errors.New("a value that is not allowed")
	ErrDuplicate = errors.New("a field that was given before")
	ErrTooLong   = errors.New("too long for the protocol")
)

// DecodeError is the place and the cause of a decoding failure.
type DecodeError struct {
	Message string // the message's type, or "header"
	Field   string // the specification's name
	Offset  int    // of that field, in bytes from the message's first
	Value   int64  // the length, type or value at that place
	Err     error  // one of the errors above
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("read OpenFlow %s: %s at byte %d: %v (%d)", e.Message, e.Field, e.Offset, e.Err, e.Value)
}

func (e *DecodeError) Unwrap() error { return e.Err }

func headerError(field string, offset int, err error, value int) *DecodeError {
	return &DecodeError{Message: "header", Field: field, Offset: offset, Value: int64(value), Err: err}
}

// EncodeError is the part of a message that OpenFlow 1.3 cannot encode.
type EncodeError struct {
	Message string // the message's type, or the part's
	Field   string
	Value   int64 // the length or value
	Err     error
}

func (e *EncodeError) Error() string {
	return fmt.Sprintf("write OpenFlow %s: %s: %v (%d)", e.Message, e.Field, e.Err, e.Value)
}

func (e *EncodeError) Unwrap() error { return e.Err }
