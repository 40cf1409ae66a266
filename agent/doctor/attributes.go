package doctor

import (
	"bytes"
	"syscall"

	"github.com/vishvananda/netlink/nl"
)

// attributes cuts a message into its attributes; nil where it is none. The library ends the process where the last
// attribute is not padded to 4 bytes, so it is padded here.
func attributes(b []byte) []syscall.NetlinkRouteAttr {
	all, err := nl.ParseRouteAttr(append(b[:len(b):len(b)], 0, 0, 0))
	if err != nil {
		return nil
	}
	return all
}

// attributeOf returns the value of the first of a kind; nil without.
func attributeOf(list []syscall.NetlinkRouteAttr, kind uint16) []byte {
	for i := range list {
		if list[i].Attr.Type&nl.NLA_TYPE_MASK == kind {
			return list[i].Value
		}
	}
	return nil
}

// cString is the text of a C string, whose end may be missing.
func cString(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}
