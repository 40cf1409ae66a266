// Package openflow reads and writes OpenFlow 1.3 messages (wire version 0x04, OpenFlow Switch Specification 1.3.5).
//
// It does no I/O. [Decode] turns one message's bytes into a struct, [Append] a struct into bytes; fields bear the
// specification's names. A decoded message may refer to the bytes it was read from: keep them unchanged while it is used. For
// any bytes, decoding returns a message or an error. It never panics, and never allocates more than a small multiple of the
// message's length, which is at most 64 KiB.
package openflow

import (
	"encoding/binary"
	"fmt"
)

// Version13 is OpenFlow 1.3's version number on the wire.
const Version13 = 0x04

// HeaderLen and MaxLen are the shortest and the longest message, in bytes.
const (
	HeaderLen = 8
	MaxLen    = 65535
)

var be = binary.BigEndian

// Header begins every message (specification 7.1.1).
type Header struct {
	Version uint8  `json:"version"`
	Type    Type   `json:"type"`
	Length  uint16 `json:"length"` // of the whole message, in bytes, with the header
	XID     uint32 `json:"xid"`    // a reply has that of its request
}

// Message is one message without its header. All are implemented by pointers to this package's structs.
type Message interface {
	MessageType() Type
	// AppendBody appends the body. The error is an [*EncodeError] if OpenFlow 1.3 cannot encode the message.
	AppendBody(b []byte) ([]byte, error)
	// DecodeBody reads the body and overwrites the message; its slices are used again. The message may refer to b. The
	// error is a [*DecodeError]; the message is invalid then.
	DecodeBody(b []byte) error
	// String gives the message on one line, with the specification's names.
	String() string
}

// ParseHeader reads the first eight bytes of b. It checks the length, but not version and type: a hello or an error message may
// have those of another version.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderLen {
		return Header{}, headerError("header", 0, ErrTruncated, len(b))
	}
	h := Header{Version: b[0], Type: Type(b[1]), Length: be.Uint16(b[2:]), XID: be.Uint32(b[4:])}
	if h.Length < HeaderLen {
		return h, headerError("length", 2, ErrLength, int(h.Length))
	}
	return h, nil
}

// Decode reads one whole message of OpenFlow 1.3, and nothing after it: b is as long as its header says.
func Decode(b []byte) (Header, Message, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return h, nil, err
	}
	switch {
	case int(h.Length) > len(b):
		return h, nil, headerError("length", 2, ErrTruncated, int(h.Length))
	case int(h.Length) < len(b):
		return h, nil, headerError("length", 2, ErrLength, int(h.Length))
	case h.Version != Version13 && h.Type != TypeHello: // a hello of any version is read: it is for choosing the version
		return h, nil, headerError("version", 0, ErrVersion, int(h.Version))
	}
	m := New(h.Type)
	if m == nil {
		return h, nil, headerError("type", 1, ErrUnknown, int(h.Type))
	}
	if err := m.DecodeBody(b[HeaderLen:]); err != nil {
		return h, nil, err
	}
	return h, m, nil
}

// Append appends the whole message, of OpenFlow 1.3.
func Append(b []byte, xid uint32, m Message) ([]byte, error) {
	start := len(b)
	b = append(b, Version13, byte(m.MessageType()), 0, 0)
	b = be.AppendUint32(b, xid)
	b, err := m.AppendBody(b)
	if err != nil {
		return b[:start], err
	}
	if len(b)-start > MaxLen {
		return b[:start], &EncodeError{Message: m.MessageType().String(), Field: "length", Err: ErrTooLong, Value: int64(len(b) - start)}
	}
	be.PutUint16(b[start+2:], uint16(len(b)-start))
	return b, nil
}

// Text returns a whole message on one line.
func Text(h Header, m Message) string {
	return fmt.Sprintf("xid=%#x %s", h.XID, m.String())
}
