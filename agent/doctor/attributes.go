package doctor

import (
	"bytes"
	"encoding/binary"
)

// attribute is one of netlink's: what it is, and its value.
type attribute struct {
	kind  uint16
	value []byte
}

// attributes cuts a message into its attributes. The library's own reader ends the process where the last
// one is not padded.
func attributes(b []byte) (out []attribute) {
	const header, align, kindMask = 4, 4, 0x3fff
	for len(b) >= header {
		length := int(binary.NativeEndian.Uint16(b))
		if length < header || length > len(b) {
			break
		}
		out = append(out, attribute{binary.NativeEndian.Uint16(b[2:]) & kindMask, b[header:length]})
		b = b[min((length+align-1)&^(align-1), len(b)):]
	}
	return out
}

// attributeOf gives the value of the first of a kind; nil without.
func attributeOf(list []attribute, kind uint16) []byte {
	for _, a := range list {
		if a.kind == kind {
			return a.value
		}
	}
	return nil
}

// cString is the text of a C string, whose end may be missing.
func cString(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}
