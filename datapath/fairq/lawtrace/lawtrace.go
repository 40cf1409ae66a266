// Package lawtrace is the differential run. It records every decision of datapath/core that the switch program
// makes in the kernel, about a port's flows, its windows and its acknowledgements, in their order. It puts the
// same questions to the native build of the same C (datapath/native). The two must agree to the bit
// (docs/differential.md).
//
// The recording program is the switch program, compiled with its hooks (bpf/fairq/trace.h). The program that
// switches run has none of them.
package lawtrace

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// The values are those of bpf/fairq/trace.h.
const (
	recordTurn   = 1
	recordLook   = 2
	recordAck    = 3
	recordCount  = 4
	recordPaces  = 5
	recordCredit = 6
	recordAsked  = 7

	slotTaken     = 1
	slotGoes      = 2
	openingComes  = 3
	openingGoes   = 4
	registerComes = 5
	registerGoes  = 6

	leftWritten = 0
	leftToEdge  = 1
	leftNot     = 2
)

// magic begins a file of a trace: the layout of bpf/fairq/trace.h is part of it. The number of records follows,
// then the records.
const magic = "weir law trace 4\n"

// sizes of the records, by kind.
var sizes = map[uint32]int{
	recordTurn:   binary.Size(lawtraceLawTurn{}),
	recordLook:   binary.Size(lawtraceLawLook{}),
	recordAck:    binary.Size(lawtraceLawAck{}),
	recordCount:  binary.Size(lawtraceLawCount{}),
	recordPaces:  binary.Size(lawtraceLawPaces{}),
	recordCredit: binary.Size(lawtraceLawCredit{}),
	recordAsked:  binary.Size(lawtraceLawAsked{}),
}

// Trace has every decision about the ports of one switch, their flows and acknowledgements.
type Trace struct {
	raw   []byte  // the records, as the kernel wrote them
	order []place // by port; first in the order of the port, then in that of its credits
}

// place is the position of a record in a trace.
type place struct {
	number  uint64 // of the port, or of its credits, from 1
	credits bool   // in the order of the port's credits
	port    uint32
	record  uint32 // its kind
	at      int
}

// newTrace puts records in order. It returns an error if a number is missing or there twice: the law's state
// after it is unknown. It cannot know whether records after the last of a port are missing; the caller does.
func newTrace(raw []byte) (*Trace, error) {
	t := &Trace{raw: raw}
	le := binary.LittleEndian
	for at := 0; at < len(raw); {
		if len(raw)-at < 16 {
			return nil, fmt.Errorf("law trace: the last %d bytes are no record: the file is damaged", len(raw)-at)
		}
		p := place{number: le.Uint64(raw[at:]), port: le.Uint32(raw[at+8:]), record: le.Uint32(raw[at+12:]), at: at}
		p.credits = p.record == recordCredit || p.record == recordAsked
		size := sizes[p.record]
		if size == 0 || size > len(raw)-at {
			return nil, fmt.Errorf("law trace: byte %d: a record of kind %d, with %d bytes left", at, p.record, len(raw)-at)
		}
		t.order = append(t.order, p)
		at += size
	}
	slices.SortFunc(t.order, func(a, b place) int { return cmp.Or(a.compareOrder(b), cmp.Compare(a.number, b.number)) })
	for i, p := range t.order {
		want := uint64(1)
		if i > 0 && p.compareOrder(t.order[i-1]) == 0 {
			want = t.order[i-1].number + 1
		}
		if p.number != want {
			return nil, fmt.Errorf("law trace: port %d: record %d follows where %d should: records are missing", p.port, p.number, want)
		}
	}
	return t, nil
}

// compareOrder compares the orders that two records belong to.
func (p place) compareOrder(q place) int {
	if p.port == q.port && p.credits != q.credits {
		if q.credits {
			return -1
		}
		return 1
	}
	return cmp.Compare(p.port, q.port)
}

// Write writes the trace to a file, for Read.
func (t *Trace) Write(w io.Writer) error {
	if _, err := w.Write(binary.LittleEndian.AppendUint64([]byte(magic), uint64(len(t.order)))); err != nil {
		return err
	}
	_, err := w.Write(t.raw)
	return err
}

// Read reads what Write wrote. It returns an error for a file that is cut short, or has another layout.
func Read(r io.Reader) (*Trace, error) {
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("law trace: %w", err)
	}
	raw, ok := bytes.CutPrefix(raw, []byte(magic))
	if !ok || len(raw) < 8 {
		return nil, errors.New("law trace: not a trace, or a trace of another version of Weir")
	}
	t, err := newTrace(raw[8:])
	if want := binary.LittleEndian.Uint64(raw); err == nil && uint64(len(t.order)) != want {
		return nil, fmt.Errorf("law trace: %d records of %d: the file is cut short", len(t.order), want)
	}
	return t, err
}

// decode reads the record at a place into one of the generated types.
func (t *Trace) decode(p place, into any) error {
	if _, err := binary.Decode(t.raw[p.at:], binary.LittleEndian, into); err != nil {
		return fmt.Errorf("law trace: port %d, record %d: %w", p.port, p.number, err)
	}
	return nil
}
