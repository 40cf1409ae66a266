package record

import (
	"fmt"
	"net/netip"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"weir/law"
)

// mode is what a coder does with a message.
type mode uint8

const (
	encode mode = iota
	decode
	describe // for record.proto
)

// coder encodes, decodes or describes messages. A message is described once, by a function that names its fields in order; so the
// directions cannot differ. Zero values are left out.
type coder struct {
	mode mode
	b    []byte  // encode: the output
	in   []field // decode: the fields of the current message
	err  error
	room int // decode: further fields and elements

	granted law.Grant // encode: the current one

	text    *strings.Builder // describe: the current message
	done    map[string]bool  // describe
	further []func()         // describe: messages that are not described yet
}

// field is a field of a message that is read.
type field struct {
	n     protowire.Number
	value uint64 // of a varint
	bytes []byte // of another one; nil: a varint
}

func (c *coder) fail(format string, a ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, a...)...)
	}
}

// fieldsOf reads the fields of a message. Those of unknown types are skipped.
func (c *coder) fieldsOf(b []byte, to []field) []field {
	for len(b) > 0 && c.err == nil {
		n, kind, used := protowire.ConsumeTag(b)
		if used < 0 {
			c.fail("%w", protowire.ParseError(used))
			break
		}
		b = b[used:]
		f := field{n: n}
		switch kind {
		case protowire.VarintType:
			f.value, used = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			f.bytes, used = protowire.ConsumeBytes(b)
			if f.bytes == nil {
				f.bytes = []byte{}
			}
		default:
			used = protowire.ConsumeFieldValue(n, kind, b)
			f.n = 0
		}
		if used < 0 {
			c.fail("%w", protowire.ParseError(used))
			break
		}
		b = b[used:]
		if c.room--; c.room < 0 {
			c.fail("more than %d fields", maxElements)
			break
		}
		to = append(to, f)
	}
	return to
}

// one returns the last field of a number, as protobuf has it.
func (c *coder) one(n int, bytes bool) (field, bool) {
	for i := len(c.in) - 1; i >= 0; i-- {
		if f := c.in[i]; f.n == protowire.Number(n) && (f.bytes != nil) == bytes {
			return f, true
		}
	}
	return field{}, false
}

func (c *coder) line(n int, kind, name string) {
	fmt.Fprintf(c.text, "  %s %s = %d;\n", kind, name, n)
}

// num is a number of 0 or more.
func num[T ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int | ~int64](c *coder, n int, name string, p *T) {
	switch c.mode {
	case encode:
		if *p != 0 {
			c.b = protowire.AppendVarint(protowire.AppendTag(c.b, protowire.Number(n), protowire.VarintType), uint64(*p))
		}
	case decode:
		f, _ := c.one(n, false)
		if *p = T(f.value); *p < 0 || uint64(*p) != f.value {
			c.fail("%s is %d", name, f.value)
		}
	case describe:
		c.line(n, "uint64", name)
	}
}

// signed is a number that may be below 0.
func signed[T ~int64](c *coder, n int, name string, p *T) {
	switch c.mode {
	case encode:
		if *p != 0 {
			c.b = protowire.AppendVarint(protowire.AppendTag(c.b, protowire.Number(n), protowire.VarintType), uint64(*p))
		}
	case decode:
		f, _ := c.one(n, false)
		*p = T(f.value)
	case describe:
		c.line(n, "int64", name)
	}
}

func (c *coder) flag(n int, name string, p *bool) {
	v := uint8(0)
	if *p {
		v = 1
	}
	if c.mode == describe {
		c.line(n, "bool", name)
		return
	}
	num(c, n, name, &v)
	*p = v != 0
}

func (c *coder) str(n int, name string, p *string) {
	switch c.mode {
	case encode:
		if *p != "" {
			c.b = protowire.AppendString(protowire.AppendTag(c.b, protowire.Number(n), protowire.BytesType), *p)
		}
	case decode:
		f, _ := c.one(n, true)
		if *p = string(f.bytes); len(f.bytes) > maxText {
			c.fail("%s has %d bytes", name, len(f.bytes))
		}
	case describe:
		c.line(n, "string", name)
	}
}

// data is bytes. Those that are read share the memory of the input.
func (c *coder) data(n int, name string, p *[]byte) {
	switch c.mode {
	case encode:
		if len(*p) > 0 {
			c.b = protowire.AppendBytes(protowire.AppendTag(c.b, protowire.Number(n), protowire.BytesType), *p)
		}
	case decode:
		f, _ := c.one(n, true)
		*p = f.bytes
	case describe:
		c.line(n, "bytes", name)
	}
}

// fixed is bytes of a fixed number, such as an Ethernet address. All zero: none.
func (c *coder) fixed(n int, name string, p []byte) {
	b := []byte(nil)
	if c.mode == encode {
		for _, v := range p {
			if v != 0 {
				b = p
			}
		}
	}
	c.data(n, name, &b)
	if c.mode == decode && b != nil {
		if len(b) != len(p) {
			c.fail("%s has %d bytes, want %d", name, len(b), len(p))
			return
		}
		copy(p, b)
	}
}

// addr is an IP address, 4 or 16 bytes. None: the zero address.
func (c *coder) addr(n int, name string, p *netip.Addr) {
	var room [16]byte
	b := []byte(nil)
	if c.mode == encode && p.IsValid() {
		if room = p.As16(); p.Is4() {
			b = room[12:]
		} else {
			b = room[:]
		}
	}
	c.data(n, name, &b)
	if c.mode == decode && b != nil {
		var ok bool
		if *p, ok = netip.AddrFromSlice(b); !ok {
			c.fail("%s is an address of %d bytes", name, len(b))
		}
	}
}

// open begins a message, with one byte for its length; shut ends it.
func (c *coder) open(n int) (begin int) {
	c.b = append(protowire.AppendTag(c.b, protowire.Number(n), protowire.BytesType), 0)
	return len(c.b)
}

// shut writes the length, and makes room for a long one. It returns the length.
func (c *coder) shut(begin int) int {
	size := len(c.b) - begin
	if more := protowire.SizeVarint(uint64(size)) - 1; more > 0 {
		c.b = append(c.b, "\x00\x00\x00\x00"[:more]...)
		copy(c.b[begin+more:], c.b[begin:begin+size])
	}
	protowire.AppendVarint(c.b[:begin-1], uint64(size))
	return size
}

// sub encodes a message, also an empty one. Its body is a function without a closure, so that nothing is allocated.
func sub[T any](c *coder, n int, v *T, body func(*coder, *T)) {
	begin := c.open(n)
	body(c, v)
	c.shut(begin)
}

// message is a field that is a message. An empty one is left out.
func message[T any](c *coder, n int, name, kind string, v *T, body func(*coder, *T)) {
	switch c.mode {
	case encode:
		before, begin := len(c.b), c.open(n)
		if body(c, v); c.shut(begin) == 0 {
			c.b = c.b[:before]
		}
	case decode:
		f, _ := c.one(n, true)
		nested(c, f.bytes, v, body)
	case describe:
		c.line(n, kind, name)
		later(c, kind, body)
	}
}

// nested decodes a message within the current one.
func nested[T any](c *coder, b []byte, v *T, body func(*coder, *T)) {
	outer := c.in
	c.in = c.fieldsOf(b, outer[len(outer):])
	if c.err == nil {
		body(c, v)
	}
	c.in = outer
}

// later describes a message after the current one, unless it was described.
func later[T any](c *coder, kind string, body func(*coder, *T)) {
	if c.done[kind] {
		return
	}
	c.done[kind] = true
	c.further = append(c.further, func() {
		fmt.Fprintf(c.text, "\nmessage %s {\n", kind)
		body(c, new(T))
		c.text.WriteString("}\n")
	})
}

// list is a list of messages.
func list[T any](c *coder, n int, name, kind string, p *[]T, body func(*coder, *T)) {
	switch c.mode {
	case encode:
		for i := range *p {
			sub(c, n, &(*p)[i], body)
		}
	case decode:
		count := 0
		for i := range c.in {
			if c.in[i].n == protowire.Number(n) && c.in[i].bytes != nil {
				count++
			}
		}
		*p = nil
		if count == 0 {
			return
		}
		*p = make([]T, 0, count)
		for i := range c.in {
			if f := c.in[i]; f.n == protowire.Number(n) && f.bytes != nil && c.err == nil {
				var v T
				nested(c, f.bytes, &v, body)
				*p = append(*p, v)
			}
		}
	case describe:
		c.line(n, "repeated "+kind, name)
		later(c, kind, body)
	}
}

// nums is a list of numbers, packed.
func nums(c *coder, n int, name string, p *[]uint32) {
	var b []byte
	if c.mode == encode {
		for _, v := range *p {
			b = protowire.AppendVarint(b, uint64(v))
		}
	}
	if c.mode == describe {
		c.line(n, "repeated uint64", name)
		return
	}
	c.data(n, name, &b)
	if c.mode != decode {
		return
	}
	*p = nil
	for len(b) > 0 {
		v, used := protowire.ConsumeVarint(b)
		if c.room--; used < 0 || v > 1<<32-1 || c.room < 0 {
			c.fail("%s is no list of numbers", name)
			return
		}
		*p = append(*p, uint32(v))
		b = b[used:]
	}
}
