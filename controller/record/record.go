// Package record stores the events that a controller's laws got, and the actions that they gave. It replays the events: through the
// same law, to check that it decides the same, or through another law or other parameters, to compare.
//
//	record.proto  the format (made from the code below)
//	coder.go      protobuf's wire format, one description of a message for both directions
//	events.go, actions.go, entry.go  the messages
//	writer.go     files of a limited size; the laws never wait for them
//	reader.go     the files of a recording, in order
//	replay.go     a law with recorded events
//	holds.go      what a law's grants limited, and for how long
package record

import "errors"

// Version is the version of the format. A reader refuses later ones.
const Version = 1

// Limits of a recording.
const (
	MaxEntry    = 4 << 20 // bytes of a message
	maxElements = 1 << 19 // of all lists of a message
	maxLaws     = 4096    // of a recording
	maxText     = 1 << 16 // bytes of a string
)

// ErrMalformed is the error for bytes that are no recording.
var ErrMalformed = errors.New("malformed recording")
