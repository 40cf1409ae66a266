// Package law has the types that laws and worlds share: units of measure, the interface of a law (Law), its description
// (Spec), and the messages between laws and worlds (Event, Action, Grant). It imports nothing of the project. Each law has a
// folder below.
package law

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Rate is a bit rate in bits per second, 0 or more. Text form: a number and kbit, Mbit or Gbit.
type Rate int64

// Bytes is an amount of data in bytes, 0 or more. Text form: a number and B, KB, MB (powers of
// 10^3), KiB or MiB (powers of 2^10).
type Bytes int64

// Duration is a length of time whose text form requires a unit: ns, us, ms or s.
type Duration time.Duration

// PacketBytes is the size of a packet, in bytes, where a world counts bytes and a limit is in packets (SPEC section 5:
// 1500 B).
const PacketBytes = 1500

// Limit is the size of a queue, or a threshold within it, in bytes or in packets. Text form: as Bytes, or a number and pkt.
type Limit struct {
	N       int64
	Packets bool
}

// Bytes returns the limit in bytes; a packet counts as PacketBytes.
func (l Limit) Bytes() Bytes {
	if l.Packets {
		return Bytes(l.N * PacketBytes)
	}
	return Bytes(l.N)
}

// Std returns the duration as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

type unit struct {
	name string
	size int64
}

var (
	rateUnits     = []unit{{"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}}
	byteUnits     = []unit{{"MiB", 1 << 20}, {"KiB", 1 << 10}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1}}
	durationUnits = []unit{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}
	packetUnits   = []unit{{"pkt", 1}}
)

// maxUnits limits every quantity to values that a float64 represents exactly, so that arithmetic on it (time scale, rate x
// time) stays exact enough everywhere.
const maxUnits = 1 << 53

// maxDigits limits the text of a number.
const maxDigits = 32

// parse reads NUMBER UNIT, with at most one space between. The longest unit that matches wins, so that "ms" is not "s". It
// returns a whole number of the quantity's step; the arithmetic is exact.
func parse(what, text string, units []unit) (int64, error) {
	number, size := "", int64(0)
	best := 0
	for _, u := range units {
		if n, ok := strings.CutSuffix(text, u.name); ok && len(u.name) > best {
			number, size, best = n, u.size, len(u.name)
		}
	}
	if err := unknownUnit(what, text, number, units); err != nil {
		return 0, err
	}
	if best == 0 {
		return 0, fmt.Errorf("%s %q needs a unit: a number and %s", what, text, unitNames(units))
	}
	number = strings.TrimSuffix(number, " ")
	if strings.HasPrefix(number, "-") {
		return 0, fmt.Errorf("%s %q is below 0", what, text)
	}
	if !isDecimal(number) {
		return 0, fmt.Errorf("%s %q is not a number and %s", what, text, unitNames(units))
	}
	v, ok := new(big.Rat).SetString(number)
	if !ok || len(number) > maxDigits {
		return 0, fmt.Errorf("%s %q has too many digits", what, text)
	}
	v.Mul(v, new(big.Rat).SetInt64(size))
	if v.Cmp(new(big.Rat).SetInt64(maxUnits)) > 0 {
		return 0, fmt.Errorf("%s %q is too large", what, text)
	}
	if !v.IsInt() {
		return 0, fmt.Errorf("%s %q is finer than 1 %s", what, text, step(what))
	}
	return v.Num().Int64(), nil
}

// step returns the smallest unit of a quantity.
func step(what string) string {
	switch what {
	case "rate":
		return "bit/s"
	case "duration":
		return "ns"
	case "limit":
		return "B or pkt"
	}
	return "B"
}

// isDecimal reports whether s consists of digits with at most one point among them: no sign, no exponent.
func isDecimal(s string) bool {
	whole, fraction, point := strings.Cut(s, ".")
	if whole == "" || (point && fraction == "") {
		return false
	}
	for _, c := range whole + fraction {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

func unitNames(units []unit) string {
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = u.name
	}
	return strings.Join(names, ", ")
}

// format writes the value with the largest unit of the list that divides it. A value that no unit divides (a rate that a
// time scale made odd) gets the smallest unit and decimals.
func format(v int64, units []unit) string {
	best, least := unit{}, units[0]
	for _, u := range units {
		if v%u.size == 0 && u.size > best.size {
			best = u
		}
		if u.size < least.size {
			least = u
		}
	}
	if v == 0 || best.size == 0 {
		best = least
	}
	text := strconv.FormatInt(v/best.size, 10)
	if rest := v % best.size; rest != 0 { // only rates: their smallest unit is 1000 steps
		text += "." + strings.TrimRight(fmt.Sprintf("%03d", rest), "0")
	}
	return text + best.name
}

// UnmarshalText reads a rate such as "200Mbit".
func (r *Rate) UnmarshalText(b []byte) error {
	v, err := parse("rate", string(b), rateUnits)
	*r = Rate(v)
	return err
}

// MarshalText writes the rate with its largest exact unit.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

func (r Rate) String() string { return format(int64(r), rateUnits) }

// UnmarshalText reads a size such as "11.5KB".
func (n *Bytes) UnmarshalText(b []byte) error {
	v, err := parse("size", string(b), byteUnits)
	*n = Bytes(v)
	return err
}

// MarshalText writes the size with its largest exact unit.
func (n Bytes) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// decimalBytes lists the units that sizes are written in: powers of ten only, as in the papers.
var decimalBytes = []unit{{"MB", 1e6}, {"KB", 1e3}, {"B", 1}}

func (n Bytes) String() string { return format(int64(n), decimalBytes) }

// UnmarshalText reads a duration such as "200us".
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := parse("duration", string(b), durationUnits)
	*d = Duration(v)
	return err
}

// MarshalText writes the duration with its largest exact unit.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d Duration) String() string { return format(int64(d), durationUnits) }

// UnmarshalText reads a limit such as "125KB" or "83pkt".
func (l *Limit) UnmarshalText(b []byte) error {
	text := string(b)
	l.Packets = strings.HasSuffix(text, "pkt")
	units := byteUnits
	if l.Packets {
		units = packetUnits
	} else if err := unknownUnit("limit", text, cutUnit(text, byteUnits), append([]unit{{"pkt", 1}}, byteUnits...)); err != nil {
		return err
	} else if !hasUnit(text, byteUnits) {
		return fmt.Errorf("limit %q needs a unit: a number and %s, or pkt", text, unitNames(byteUnits))
	}
	v, err := parse("limit", text, units)
	l.N = v
	return err
}

func hasUnit(text string, units []unit) bool {
	for _, u := range units {
		if strings.HasSuffix(text, u.name) {
			return true
		}
	}
	return false
}

// MarshalText writes the limit in the unit kind it was given in.
func (l Limit) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

func (l Limit) String() string {
	if l.Packets {
		return strconv.FormatInt(l.N, 10) + "pkt"
	}
	return Bytes(l.N).String()
}
