package law

import (
	"fmt"
	"strings"
)

// unknownUnit returns the error for a number whose unit is not in the list, with the unit that was most likely meant.
// number is the text before the unit that was recognised; "": no unit was recognised.
func unknownUnit(what, text, number string, units []unit) error {
	if isDecimal(strings.TrimSuffix(number, " ")) {
		return nil
	}
	digits := strings.TrimRight(text[:len(text)-len(strings.TrimLeft(text, "0123456789."))], ".")
	given := strings.TrimLeft(text[len(digits):], " ")
	if !isDecimal(digits) || given == "" || !isWord(given) || cutUnit("1"+given, units) == "1" {
		return nil
	}
	if meant := meantUnit(given, units); meant != "" {
		return fmt.Errorf("%s %q: unknown unit %q; did you mean %s?", what, text, given, digits+meant)
	}
	return fmt.Errorf("%s %q: unknown unit %q: a number and %s", what, text, given, unitNames(units))
}

// isWord reports whether s could be the name of a unit: letters, with a slash as in bit/s.
func isWord(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '/' && r != '\u00b5' && r != '\u03bc'
	})
}

// otherNames maps common other names of units, in lower case, to units. It omits names that could mean two units, such as
// "mb" for a rate's Mbit and a size's MB: there the case decides.
var otherNames = map[string]string{
	"byte": "B", "bytes": "B", "k": "K", "packet": "pkt", "packets": "pkt", "pkts": "pkt", "p": "pkt",
	"sec": "s", "secs": "s", "second": "s", "seconds": "s", "msec": "ms", "msecs": "ms", "millisecond": "ms", "milliseconds": "ms",
	"usec": "us", "usecs": "us", "microsecond": "us", "microseconds": "us", "\u00b5s": "us", "\u03bcs": "us",
	"nsec": "ns", "nsecs": "ns", "nanosecond": "ns", "nanoseconds": "ns",
}

// meantUnit returns the unit that another name most likely means; "": not known.
func meantUnit(given string, units []unit) string {
	lower := strings.ToLower(given)
	shorter := strings.TrimSuffix(strings.TrimSuffix(lower, "/s"), "s")           // Mbits, Mbit/s
	perSecond := strings.TrimSuffix(strings.TrimSuffix(shorter, "p"), "/") + "it" // Mbps, Mb/s
	for _, name := range []string{otherNames[lower], lower, shorter, perSecond, lower + "it", lower + "bit", lower + "b"} {
		for _, u := range units {
			if name != "" && strings.EqualFold(name, u.name) && !inBytes(given, u.name) {
				return u.name
			}
		}
	}
	return ""
}

// inBytes reports whether given is a unit of bytes and meant one of bits: "100MB" is not 100Mbit.
func inBytes(given, meant string) bool {
	return strings.Contains(given, "B") && strings.HasSuffix(meant, "bit")
}

// cutUnit returns the text before the longest unit at the end of text; "": there is no unit.
func cutUnit(text string, units []unit) string {
	number, longest := "", 0
	for _, u := range units {
		if n, ok := strings.CutSuffix(text, u.name); ok && len(u.name) > longest {
			number, longest = n, len(u.name)
		}
	}
	return number
}
