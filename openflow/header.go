// Package openflow reads and writes OpenFlow 1.3 messages (wire version 0x04, OpenFlow Switch Specification 1.3.5).
//
// It does no I/O. [Decode] turns one message's bytes into a struct, [Append] a struct into bytes; fields bear the
// specification's names. A decoded message may refer to the bytes it was read from: keep them unchanged for as long
// as it is used. Whatever the bytes, decoding ends with a message or an error: it never panics, and never allocates more
// than a small multiple of the message's length, which is at most 64 KiB.
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
	XID     uint32 `json:"xid"`    // a reply carries its request's
}

// Message is one message without its header. All are implemented by pointers to this package's structs.
type Message interface {
	MessageType() Type
	// AppendBody appends what follows the header. It fails, with an [*EncodeError], when the message cannot be said.
	AppendBody(b []byte) ([]byte, error)
	// DecodeBody reads what follows the header, and overwrites the message; slices it holds are used again. What it
	// reads may refer to b. It fails with a [*DecodeError]; the message is then of no use.
	DecodeBody(b []byte) error
	// String gives the message on one line, with the specification's names.
	String() string
}

// ParseHeader reads the first eight bytes of b. It does not judge version and type, which a hello or the peer's error
// message may have of another version; it does judge the length, which no peer can mean otherwise.
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
	case h.Version != Version13 && h.Type != TypeHello: // a hello of any version is read: it says which to use
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

// Text gives a whole message on one line.
func Text(h Header, m Message) string {
	return fmt.Sprintf("xid=%#x %s", h.XID, m.String())
}
