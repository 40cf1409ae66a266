package frames

import "encoding/binary"

// Kinds of TCP options.
const (
	OptionEnd        = 0
	OptionNop        = 1
	OptionMSS        = 2
	OptionScale      = 3
	OptionPermitted  = 4
	OptionSACK       = 5
	OptionTimestamps = 8
	OptionMD5        = 19 // RFC 2385
	OptionAO         = 29 // RFC 5925
	OptionFastOpen   = 34
)

// Option returns one option as it stands in the header: kind, length, content.
func Option(kind byte, content ...byte) []byte {
	return append([]byte{kind, byte(2 + len(content))}, content...)
}

// MSS returns the maximum segment size option.
func MSS(bytes uint16) []byte { return Option(OptionMSS, byte(bytes>>8), byte(bytes)) }

// Scale returns the window scale option.
func Scale(shift byte) []byte { return Option(OptionScale, shift) }

// Timestamps returns the timestamps option.
func Timestamps(value, echo uint32) []byte {
	return Option(OptionTimestamps, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, value), echo)...)
}

// SACK returns an option with blocks of 100 bytes from a sequence number on, 200 apart.
func SACK(blocks int, from uint32) []byte {
	var content []byte
	for i := range blocks {
		content = binary.BigEndian.AppendUint32(content, from+uint32(200*i))
		content = binary.BigEndian.AppendUint32(content, from+uint32(200*i)+100)
	}
	return Option(OptionSACK, content...)
}

// List concatenates options and pads them with fill, OptionEnd or OptionNop, to 4 bytes.
func List(fill byte, options ...[]byte) (list []byte) {
	for _, o := range options {
		list = append(list, o...)
	}
	for len(list)%4 != 0 {
		list = append(list, fill)
	}
	return list
}

// Nop is one byte without meaning.
var Nop = []byte{OptionNop}

// Signed reports whether a list of options has one that signs the segment. A list ends where an option
// contradicts itself: no receiver reads the bytes behind it as options (RFC 9293 3.1, MUST-68).
func Signed(list []byte) bool {
	for len(list) > 0 && list[0] != OptionEnd {
		if list[0] == OptionNop {
			list = list[1:]
			continue
		}
		if len(list) < 2 || list[1] < 2 || int(list[1]) > len(list) {
			return false
		}
		if list[0] == OptionMD5 || list[0] == OptionAO {
			return true
		}
		list = list[list[1]:]
	}
	return false
}
