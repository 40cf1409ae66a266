// Package deadline declares to the agent of this host when a program needs its data to arrive, so that the laws of the network can see to
// it. docs/sed.md describes it.
//
//	deadline.go  what a program declares, and how it is written
//	client.go    a client of the agent
package deadline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"time"
)

// Limits of a declaration.
const (
	MaxBody   = 1024      // bytes of a request
	MaxWithin = time.Hour // until the deadline
	MaxBytes  = 1 << 50   // of the message
	MaxValue  = 100       // of the message
)

// Declaration is a message that a program begins now, on a TCP connection that is open.
type Declaration struct {
	Source      netip.AddrPort // the program's own end
	Destination netip.AddrPort
	Within      time.Duration // from now until the last byte must have arrived; above 0
	Bytes       uint64        // of the message; 0: not known
	Value       uint32        // of the message, compared with others if not all can be in time: 1 to MaxValue; 0 is 1
}

// Declared is a declaration that the agent has.
type Declared struct {
	ID uint64
	Declaration
}

// body is the JSON of a declaration.
type body struct {
	ID          uint64         `json:"id,omitempty"`
	Source      netip.AddrPort `json:"source"`
	Destination netip.AddrPort `json:"destination"`
	WithinMs    float64        `json:"within_ms"`
	Bytes       uint64         `json:"bytes,omitempty"`
	Value       uint32         `json:"value,omitempty"`
}

// MarshalJSON writes a declaration as the agent reads it.
func (d Declaration) MarshalJSON() ([]byte, error) { return json.Marshal(d.body()) }

func (d *Declaration) body() body {
	return body{Source: d.Source, Destination: d.Destination, WithinMs: float64(d.Within) / 1e6, Bytes: d.Bytes, Value: d.Value}
}

// MarshalJSON writes a declaration with its ID.
func (d Declared) MarshalJSON() ([]byte, error) {
	b := d.body()
	b.ID = d.ID
	return json.Marshal(b)
}

// UnmarshalJSON reads what the agent writes.
func (d *Declared) UnmarshalJSON(text []byte) error {
	var b body
	if err := json.Unmarshal(text, &b); err != nil {
		return err
	}
	*d = Declared{b.ID, Declaration{b.Source, b.Destination, nanoseconds(b.WithinMs), b.Bytes, b.Value}}
	return nil
}

// nanoseconds rounds, so that a time that was written is read as the same.
func nanoseconds(ms float64) time.Duration { return time.Duration(math.Round(ms * 1e6)) }

// ErrMalformed is the error of Decode.
var ErrMalformed = errors.New("malformed declaration")

// Decode reads a declaration strictly: each key once, none that is unknown, every value in its range, nothing behind it.
func Decode(text []byte) (Declaration, error) {
	d, err := decode(text)
	if err != nil {
		return Declaration{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return d, nil
}

func decode(text []byte) (d Declaration, err error) {
	if len(text) > MaxBody {
		return d, fmt.Errorf("%d bytes, want at most %d", len(text), MaxBody)
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	if t, err := in.Token(); err != nil || t != json.Delim('{') {
		return d, errors.New("not a JSON object")
	}
	seen := map[string]bool{}
	for in.More() {
		key, err := in.Token()
		if err != nil {
			return d, err
		}
		name, _ := key.(string)
		if seen[name] {
			return d, fmt.Errorf("%q is there twice", clip(name))
		}
		seen[name] = true
		value, err := in.Token()
		if err != nil {
			return d, err
		}
		if err := d.set(name, value); err != nil {
			return d, err
		}
	}
	if _, err := in.Token(); err != nil {
		return d, err
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return d, errors.New("there is more behind the object")
	}
	for _, name := range []string{"source", "destination", "within_ms"} {
		if !seen[name] {
			return d, fmt.Errorf("%s is missing", name)
		}
	}
	return d, d.check()
}

// set sets the field of a key.
func (d *Declaration) set(name string, value json.Token) (err error) {
	switch name {
	case "source":
		d.Source, err = end(value)
	case "destination":
		d.Destination, err = end(value)
	case "within_ms":
		var ms float64
		if ms, err = number(value).Float64(); err == nil {
			if !(ms > 0 && ms <= float64(MaxWithin/time.Millisecond)) {
				return fmt.Errorf("within_ms: above 0, at most %d", MaxWithin/time.Millisecond)
			}
			d.Within = nanoseconds(ms)
		}
	case "bytes":
		d.Bytes, err = whole(value, MaxBytes)
	case "value":
		var n uint64
		n, err = whole(value, MaxValue)
		d.Value = uint32(n)
	default:
		return fmt.Errorf("%q is unknown: allowed are source, destination, within_ms, bytes, value", clip(name))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// number returns a JSON number; "" for anything else, which is none.
func number(value json.Token) json.Number {
	n, _ := value.(json.Number)
	return n
}

// whole reads a whole number from 1 to most.
func whole(value json.Token, most int64) (uint64, error) {
	n, err := number(value).Int64()
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("a whole number from 1 to %d is needed", most)
	}
	return uint64(n), nil
}

// end reads an address and a port.
func end(value json.Token) (netip.AddrPort, error) {
	text, _ := value.(string)
	a, err := netip.ParseAddrPort(text)
	if err != nil || a.Port() == 0 || a.Addr().IsUnspecified() || a.Addr().Zone() != "" {
		return a, errors.New("an address and a port are needed, such as 10.0.0.1:40000 or [fd00::1]:40000")
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

// check checks what concerns several fields.
func (d *Declaration) check() error {
	switch {
	case d.Source.Addr().Is4() != d.Destination.Addr().Is4():
		return errors.New("source and destination: one family is needed")
	case d.Source == d.Destination:
		return errors.New("source and destination are the same")
	case d.Within <= 0:
		return errors.New("within_ms: above 0")
	}
	return nil
}

// clip shortens a text for an error.
func clip(text string) string { return text[:min(len(text), 40)] }
