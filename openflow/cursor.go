package openflow

// cursor reads a message from front to end. It keeps the first error in err. All later reads return zero, so that a decoder
// checks for errors once, at its end.
type cursor struct {
	b    []byte // the unread rest
	end  int    // end of b, in bytes from the message's first
	what Type
	err  error
}

// newCursor reads the body of a message.
func newCursor(what Type, body []byte) cursor {
	return cursor{b: body, end: HeaderLen + len(body), what: what}
}

// at returns the offset of the next byte from the message's first.
func (c *cursor) at() int { return c.end - len(c.b) }

func (c *cursor) more() bool { return len(c.b) > 0 }

// fail keeps the first error. offset counts from the message's first byte.
func (c *cursor) fail(field string, offset int, err error, value int) {
	if c.err == nil {
		c.err = &DecodeError{Message: c.what.String(), Field: field, Offset: offset, Value: int64(value), Err: err}
	}
	c.b, c.end = nil, offset
}

func (c *cursor) short(field string) { c.fail(field, c.at(), ErrTruncated, len(c.b)) }

func (c *cursor) u8(field string) uint8 {
	if len(c.b) < 1 {
		c.short(field)
		return 0
	}
	v := c.b[0]
	c.b = c.b[1:]
	return v
}

func (c *cursor) u16(field string) uint16 {
	if len(c.b) < 2 {
		c.short(field)
		return 0
	}
	v := be.Uint16(c.b)
	c.b = c.b[2:]
	return v
}

func (c *cursor) u32(field string) uint32 {
	if len(c.b) < 4 {
		c.short(field)
		return 0
	}
	v := be.Uint32(c.b)
	c.b = c.b[4:]
	return v
}

func (c *cursor) u64(field string) uint64 {
	if len(c.b) < 8 {
		c.short(field)
		return 0
	}
	v := be.Uint64(c.b)
	c.b = c.b[8:]
	return v
}

// pad skips n bytes of padding: senders write zeros, receivers ignore them (specification 7.1.1).
func (c *cursor) pad(n int) { c.take("pad", n) }

// take returns the next n bytes; nil if there are fewer.
func (c *cursor) take(field string, n int) []byte {
	if n < 0 || len(c.b) < n {
		c.short(field)
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

// rest returns the unread rest.
func (c *cursor) rest() []byte {
	v := c.b[:len(c.b):len(c.b)]
	c.b = c.b[len(c.b):]
	return v
}

// sub returns a cursor over the next n bytes. Call join with it afterwards, which takes over its error.
func (c *cursor) sub(field string, n int) cursor {
	v := c.take(field, n)
	return cursor{b: v, end: c.at(), what: c.what, err: c.err}
}

// join takes over the error of a cursor that sub returned.
func (c *cursor) join(s *cursor) {
	if c.err == nil && s.err != nil {
		c.err, c.b = s.err, nil
	}
}

// element opens a structure of the kind {type, length, ...} whose length, at offset 2, counts itself and is at least
// min and a multiple of the alignment. It returns the type and a cursor over the bytes after the length.
func (c *cursor) element(field string, minLen, align int) (uint16, cursor) {
	if len(c.b) < 4 {
		c.short(field)
		return 0, *c
	}
	typ, n := be.Uint16(c.b), int(be.Uint16(c.b[2:]))
	if n < minLen || n%align != 0 {
		c.fail(field+".length", c.at()+2, ErrLength, n)
		return typ, *c
	}
	if n > len(c.b) {
		c.fail(field+".length", c.at()+2, ErrTruncated, n)
		return typ, *c
	}
	s := c.sub(field, n)
	s.b = s.b[4:]
	return typ, s
}

// sized opens a structure that begins with its length, which counts itself, is at least minLen and a multiple of align.
// It returns a cursor over the bytes after the length.
func (c *cursor) sized(field string, minLen, align int) cursor {
	if len(c.b) < 2 {
		c.short(field)
		return *c
	}
	n := int(be.Uint16(c.b))
	switch {
	case n < minLen || n%align != 0:
		c.fail(field, c.at(), ErrLength, n)
		return *c
	case n > len(c.b):
		c.fail(field, c.at(), ErrTruncated, n)
		return *c
	}
	s := c.sub(field, n)
	s.b = s.b[2:]
	return s
}

// done ends the decoding: it returns the first error, or an error if bytes are left.
func (c *cursor) done() error {
	if c.err == nil && len(c.b) > 0 {
		c.fail("length", c.at(), ErrLength, len(c.b))
	}
	return c.err
}

var zeros [64]byte

// appendZeros appends n zero bytes, n at most 64.
func appendZeros(b []byte, n int) []byte { return append(b, zeros[:n]...) }

// appendPad fills up to a multiple of 8 bytes, counted from start.
func appendPad(b []byte, start int) []byte {
	return appendZeros(b, (8-(len(b)-start)%8)%8)
}

// putLength writes the length of the structure that begins at start into the two bytes at at.
func putLength(b []byte, start, at int, what string) ([]byte, error) {
	n := len(b) - start
	if n > MaxLen {
		return b, &EncodeError{Message: what, Field: "length", Err: ErrTooLong, Value: int64(n)}
	}
	be.PutUint16(b[at:], uint16(n))
	return b, nil
}
