// Package record stores the events that a controller's laws got, and the actions that they gave. It replays the events: through the
// same law, to check that it decides the same, or through another law or other parameters, to compare.
//
//	entry.go      the format: a sequence of CBOR items (RFC 8742), a Header and then Entries
//	format.go     which kinds of events and actions it has, and the limits of what is read
//	writer.go     files of a limited size; the laws never wait for them
//	reader.go     the files of a recording, in order
//	replay.go     a law with recorded events
//	holds.go      what a law's grants limited, and for how long
package record

import "errors"

// Version is the version of the format: of the types in entry.go, and of all events and actions. A reader refuses others. Version 1 was
// protobuf. Version 3 has events of single flows.
const Version = 3

// Limits of a recording.
const (
	MaxEntry    = 4 << 20 // bytes
	maxElements = 1 << 17 // of a list
	maxLaws     = 4096    // of a recording
	maxText     = 1 << 16 // bytes of a law's parameters
)

// ErrMalformed is the error for bytes that are no recording.
var ErrMalformed = errors.New("malformed recording")
