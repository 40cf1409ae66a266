// Package sflow receives sFlow version 5 (sflow.org, sflow_version_5.txt) from switches that have no agent of Weir, and turns it into
// readings for laws: packets with CE by the VM that sent them, and counters of interfaces.
//
//	decode.go    datagram, samples, records: everything is checked, nothing is copied
//	frame.go     the sampled header: ECN field and source address
//	receiver.go  bounded tables, and the readings
package sflow

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Numbers of the standard.
const (
	version5 = 5

	addressIPv4, addressIPv6 = 1, 2

	flowSample, counterSample, flowSampleExpanded, counterSampleExpanded = 1, 2, 3, 4 // data formats of enterprise 0

	rawHeader, interfaceCounters = 1, 1 // of records

	headerEthernet = 1

	// multiple and unknown are no single interface.
	interfaceBits = 30
	unknown       = 1<<interfaceBits - 1
)

// MaxDatagram is the longest datagram that is read.
const MaxDatagram = 1 << 16

var errShort = errors.New("it ends too early")

// reader reads numbers. After an error it gives zeros.
type reader struct {
	b   []byte
	err error
}

func (r *reader) take(n uint32) []byte {
	if r.err != nil || uint64(n) > uint64(len(r.b)) {
		r.err = errShort
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// opaque reads a length and so many bytes, with padding to four.
func (r *reader) opaque() []byte {
	n := r.u32()
	b := r.take(n)
	if n%4 != 0 {
		r.take(4 - n%4)
	}
	return b
}

// datagram is the head of a datagram.
type datagram struct {
	subAgent, sequence, uptimeMs uint32
}

// packet is a sampled packet.
type packet struct {
	rate, input, output uint32 // output, input: interfaces; unknown: none, or several
	header              []byte // with the Ethernet header; nil: the sample has none
}

// counters are those of an interface.
type counters struct {
	index                                               uint32
	outBytes                                            uint64
	outUnicast, outMulticast, outBroadcast, outDiscards uint32
}

// visitor gets what a datagram has, in its order.
type visitor interface {
	// begin is called once. If it returns false, nothing else is.
	begin(*datagram) bool
	packet(*packet)
	counters(*counters)
}

// decode reads a datagram. On an error, the parts before it were visited.
func decode(b []byte, to visitor) error {
	r := &reader{b: b}
	if v := r.u32(); r.err == nil && v != version5 {
		return fmt.Errorf("version %d of sFlow, want %d", v, version5)
	}
	switch r.u32() {
	case addressIPv4:
		r.take(4)
	case addressIPv6:
		r.take(16)
	default:
		return errors.New("an agent's address of an unknown type")
	}
	d := datagram{subAgent: r.u32(), sequence: r.u32(), uptimeMs: r.u32()}
	n := r.u32()
	if r.err != nil {
		return r.err
	}
	if !to.begin(&d) {
		return nil
	}
	for range n {
		format, body := r.u32(), r.opaque()
		if r.err != nil {
			return r.err
		}
		if err := sample(format, body, to); err != nil {
			return err
		}
	}
	return nil
}

// sample reads a sample. One of another format has no effect.
func sample(format uint32, body []byte, to visitor) error {
	r := &reader{b: body}
	switch format {
	case flowSample, flowSampleExpanded:
		p := packet{}
		r.u32() // sequence
		dataSource(r, format == flowSampleExpanded)
		p.rate = r.u32()
		r.u32() // pool
		r.u32() // drops
		p.input, p.output = number(r, format == flowSampleExpanded), number(r, format == flowSampleExpanded)
		err := records(r, func(of uint32, b *reader) {
			if of == rawHeader {
				p.header = ethernet(b)
			}
		})
		if err != nil {
			return err
		}
		to.packet(&p)
	case counterSample, counterSampleExpanded:
		r.u32()
		dataSource(r, format == counterSampleExpanded)
		return records(r, func(of uint32, b *reader) {
			if of == interfaceCounters {
				to.counters(interfaceOf(b))
			}
		})
	}
	return nil
}

func dataSource(r *reader, expanded bool) {
	r.u32()
	if expanded {
		r.u32()
	}
}

// number reads an interface. Both forms have a format, 0 for a single interface, and a number.
func number(r *reader, expanded bool) uint32 {
	format, n := uint32(0), r.u32()
	if expanded {
		format, n = n, r.u32()
	} else {
		format, n = n>>interfaceBits, n&unknown
	}
	if format != 0 || n > unknown {
		return unknown
	}
	return n
}

// records reads the records of a sample.
func records(r *reader, each func(format uint32, b *reader)) error {
	n := r.u32()
	for range n {
		format, body := r.u32(), reader{b: r.opaque()}
		if r.err != nil {
			break
		}
		if each(format, &body); body.err != nil {
			return body.err
		}
	}
	return r.err
}

// ethernet returns a sampled header; nil: it is not of Ethernet.
func ethernet(r *reader) []byte {
	protocol := r.u32()
	r.u32() // length of the frame
	r.u32() // bytes that the switch removed at its end
	if b := r.opaque(); protocol == headerEthernet {
		return b
	}
	return nil
}

// interfaceOf reads the generic counters of an interface.
func interfaceOf(r *reader) *counters {
	c := &counters{index: r.u32()}
	r.take(4 + 8 + 4 + 4) // type, speed, direction, state
	r.take(8 + 6*4)       // arrived
	c.outBytes = r.u64()
	c.outUnicast, c.outMulticast, c.outBroadcast, c.outDiscards = r.u32(), r.u32(), r.u32(), r.u32()
	r.take(2 * 4) // errors, promiscuous
	return c
}
