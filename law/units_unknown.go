package law

import (
	"fmt"
	"strings"
)

// unknownUnit refuses a number with a unit that is none of these, and names the one that was most likely meant.
// number is what stands before the unit that was recognised; "": none was.
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

// otherNames are names of units that many write, by their lower case. What could mean two units is not here, such as
// "mb" for a rate's Mbit and a size's MB: each quantity finds its own by the case.
var otherNames = map[string]string{
	"byte": "B", "bytes": "B", "k": "K", "packet": "pkt", "packets": "pkt", "pkts": "pkt", "p": "pkt",
	"sec": "s", "secs": "s", "second": "s", "seconds": "s", "msec": "ms", "msecs": "ms", "millisecond": "ms", "milliseconds": "ms",
	"usec": "us", "usecs": "us", "microsecond": "us", "microseconds": "us", "\u00b5s": "us", "\u03bcs": "us",
	"nsec": "ns", "nsecs": "ns", "nanosecond": "ns", "nanoseconds": "ns",
}

// meantUnit is the unit that was meant by another name; "": that cannot be told.
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

// inBytes reports whether a rate's unit would stand for what was written in bytes: "100MB" is not 100Mbit.
func inBytes(given, meant string) bool {
	return strings.Contains(given, "B") && strings.HasSuffix(meant, "bit")
}

// cutUnit is what stands before the longest unit at the end of text; "": there is none.
func cutUnit(text string, units []unit) string {
	number, longest := "", 0
	for _, u := range units {
		if n, ok := strings.CutSuffix(text, u.name); ok && len(u.name) > longest {
			number, longest = n, len(u.name)
		}
	}
	return number
}
