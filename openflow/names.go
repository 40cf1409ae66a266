package openflow

import (
	"encoding/json"
	"strconv"
	"strings"
)

// nameOf returns the name of a value, or its number.
func nameOf(names []string, v uint64) string {
	if v < uint64(len(names)) && names[v] != "" {
		return names[v]
	}
	return strconv.FormatUint(v, 10)
}

// flagsOf returns the names of the set bits, lowest first, and unnamed bits as one number; "0" for none.
func flagsOf(names []string, v uint64) string {
	if v == 0 {
		return "0"
	}
	var parts []string
	for i, name := range names {
		if bit := uint64(1) << i; v&bit != 0 && name != "" {
			parts = append(parts, name)
			v &^= bit
		}
	}
	if v != 0 {
		parts = append(parts, "0x"+strconv.FormatUint(v, 16))
	}
	return strings.Join(parts, "|")
}

// nameJSON returns a name as a JSON string, a number as a number.
func nameJSON(s string) []byte {
	if s[0] >= '0' && s[0] <= '9' {
		return []byte(s)
	}
	return []byte(strconv.Quote(s))
}

// flagsJSON returns flags as a JSON array of names.
func flagsJSON(s string) []byte {
	if s == "0" {
		return []byte("[]")
	}
	b, err := json.Marshal(strings.Split(s, "|"))
	if err != nil {
		panic(err) // a list of strings
	}
	return b
}
