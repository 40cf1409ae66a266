package channel

import (
	"io"

	"weir/openflow"
)

// A buffer begins small, so that a thousand idle switches cost little. It grows only with received bytes: a header that announces
// 64 KiB costs nothing.
const (
	bufferMin = 4 << 10
	bufferMax = 64 << 10 // more than the longest message
)

// frames cuts a stream of bytes into messages. One goroutine uses it.
type frames struct {
	buf  []byte
	r, w int // buf[r:w] was received and is not part of a returned message yet
	most int // longest message, bytes
	grow bool
	cut  uint64 // messages returned
}

func newFrames(most int) frames { return frames{buf: make([]byte, bufferMin), most: most} }

// next returns the next whole message with its header, valid until fill is called; nil if more bytes are needed.
func (f *frames) next() (openflow.Header, []byte, error) {
	have := f.buf[f.r:f.w]
	if len(have) < openflow.HeaderLen {
		return openflow.Header{}, nil, nil
	}
	h, err := openflow.ParseHeader(have)
	if err != nil {
		return h, nil, err
	}
	n := int(h.Length)
	if n > f.most {
		return h, nil, &openflow.DecodeError{Message: h.Type.String(), Field: "length", Offset: 2, Value: int64(n), Err: openflow.ErrTooLong}
	}
	if n > len(have) {
		return h, nil, nil
	}
	f.r += n
	f.cut++
	return h, have[:n:n], nil
}

// partial reports whether a message has begun and not ended.
func (f *frames) partial() bool { return f.r < f.w }

// fill reads once.
func (f *frames) fill(from io.Reader) (int, error) {
	if f.r > 0 {
		f.w = copy(f.buf, f.buf[f.r:f.w])
		f.r = 0
	}
	if (f.grow || f.w == len(f.buf)) && len(f.buf) < bufferMax {
		f.resize(2 * len(f.buf))
	}
	n, err := from.Read(f.buf[f.w:])
	f.w += n
	f.grow = f.w == len(f.buf)
	return n, err
}

// shrink frees memory while nothing arrives.
func (f *frames) shrink() {
	if f.r == f.w && len(f.buf) > bufferMin {
		f.resize(bufferMin)
	}
}

func (f *frames) resize(n int) {
	b := make([]byte, n)
	f.w = copy(b, f.buf[f.r:f.w])
	f.r, f.buf, f.grow = 0, b, false
}
