package weirv1

import (
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// TelemetryDecoder decodes reports into memory that it uses again: a controller decodes thousands a second, each with all ports of a
// switch. It takes and refuses what the generated decoder does. The zero value is ready.
type TelemetryDecoder struct {
	m       Telemetry
	ports   []*PortReport  // memory of m, at most MaxPorts + 1
	sources []*SourceMarks // of all ports, at most MaxSources + 1
}

// Decode reads the payload of weir.v1.tel.AGENT. The report is valid until the next call, but its origin may be kept. The error wraps
// ErrMalformed.
func (d *TelemetryDecoder) Decode(b []byte) (*Telemetry, error) {
	if len(b) > MaxMessage {
		return nil, tooLong(len(b))
	}
	d.ports, d.sources = d.ports[:0], d.sources[:0]
	d.m.Origin, d.m.Switch, d.m.IntervalNs = nil, 0, 0
	err := d.telemetry(b)
	d.m.Ports = d.ports
	if err == nil {
		err = d.m.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return &d.m, nil
}

// wire is one field of a message: a number, or bytes.
type wire struct {
	field  protowire.Number
	kind   protowire.Type
	number uint64
	bytes  []byte
}

// next reads the first field of b, and returns what follows it.
func (w *wire) next(b []byte) ([]byte, error) {
	tag, n := binary.Uvarint(b)
	w.field, w.kind = protowire.Number(tag>>3), protowire.Type(tag&7)
	if n <= 0 || tag>>3 == 0 || tag>>3 > uint64(protowire.MaxValidNumber) {
		return nil, errors.New("a field without a number")
	}
	b = b[n:]
	switch w.kind {
	case protowire.VarintType:
		w.number, n = binary.Uvarint(b)
		if n == 0 {
			n = -1 // it is cut off
		}
	case protowire.Fixed64Type:
		w.number, n = protowire.ConsumeFixed64(b)
	case protowire.BytesType:
		w.bytes, n = protowire.ConsumeBytes(b)
	default: // of a later version
		n = protowire.ConsumeFieldValue(w.field, w.kind, b)
	}
	if n < 0 {
		return nil, fmt.Errorf("field %d is cut off, or has no known form", w.field)
	}
	return b[n:], nil
}

// is reports whether the field has this number and form. Others are of a later version, and left out.
func (w *wire) is(field protowire.Number, kind protowire.Type) bool {
	return w.field == field && w.kind == kind
}

func (d *TelemetryDecoder) telemetry(b []byte) (err error) {
	for w := (wire{}); len(b) > 0 && err == nil; {
		if b, err = w.next(b); err != nil {
			return err
		}
		switch {
		case w.is(1, protowire.BytesType):
			if d.m.Origin == nil {
				d.m.Origin = &Origin{}
			}
			err = d.m.Origin.read(w.bytes)
		case w.is(2, protowire.VarintType):
			d.m.Switch = w.number
		case w.is(3, protowire.VarintType):
			d.m.IntervalNs = w.number
		case w.is(4, protowire.BytesType):
			err = d.port(w.bytes)
		}
	}
	return err
}

func (x *Origin) read(b []byte) (err error) {
	for w := (wire{}); len(b) > 0; {
		if b, err = w.next(b); err != nil {
			return err
		}
		switch {
		case w.is(1, protowire.Fixed64Type):
			x.Incarnation = w.number
		case w.is(2, protowire.VarintType):
			x.Sequence = w.number
		case w.is(3, protowire.VarintType):
			x.StampNs = w.number
		}
	}
	return nil
}

// port reads the report of one port.
func (d *TelemetryDecoder) port(b []byte) (err error) {
	d.ports = again(d.ports)
	if err := atMost("ports", d.ports, MaxPorts); err != nil {
		return err
	}
	x, from := d.ports[len(d.ports)-1], len(d.sources)
	*x = PortReport{}
	for w := (wire{}); len(b) > 0; {
		if b, err = w.next(b); err != nil {
			return err
		}
		switch w.kind {
		case protowire.VarintType:
			x.set(w.field, w.number)
		case protowire.BytesType:
			if w.field != 7 {
				continue
			}
			if err := d.source(w.bytes); err != nil {
				return err
			}
		}
	}
	x.Sources = d.sources[from:]
	return nil
}

// set sets the field with a number.
func (x *PortReport) set(field protowire.Number, n uint64) {
	switch field {
	case 1:
		x.Port = uint32(n)
	case 2:
		x.BacklogBytes = n
	case 3:
		x.PeakBytes = n
	case 4:
		x.OfferedBytes = n
	case 5:
		x.DroppedPackets = n
	case 6:
		x.MarkedPackets = n
	case 8:
		x.SentBytes = n
	case 9:
		x.OfferedPackets = n
	case 10:
		x.UnknownMarks = n
	case 11:
		x.FurtherMarks = n
	}
}

// source reads the marks of one VM.
func (d *TelemetryDecoder) source(b []byte) (err error) {
	d.sources = again(d.sources)
	if len(d.sources) > MaxSources {
		return errManySources
	}
	x := d.sources[len(d.sources)-1]
	*x = SourceMarks{}
	for w := (wire{}); len(b) > 0; {
		if b, err = w.next(b); err != nil {
			return err
		}
		switch {
		case w.is(1, protowire.VarintType):
			x.Vm = uint32(w.number)
		case w.is(2, protowire.VarintType):
			x.MarkedPackets = w.number
		}
	}
	return nil
}

// again returns a list with one message more: that which the list had there before, or a new one.
func again[T any](list []*T) []*T {
	if n := len(list); n < cap(list) {
		if list = list[:n+1]; list[n] == nil {
			list[n] = new(T)
		}
		return list
	}
	return append(list, new(T))
}
