package store

import (
	"bytes"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"unsafe"

	"weir/experiment/result"
)

// Limits of an entry that another machine sends.
const (
	maxReceived = 256 << 20 // bytes without compression: 30 times those of experiments/incast.yaml
	maxMemory   = 2 << 30   // bytes in memory
)

// counted has the slices of an Entry with elements as small as gob allows. gob writes an element of a slice with a single byte if
// it is zero, which takes hundreds of bytes in memory.
type counted struct {
	Raw *struct {
		Unmet []struct{ Severity string }
		Flows []struct{ Done bool }
		Ports []struct {
			Labels  []string
			Samples []struct{ Backlog int64 }
		}
		Drops      []struct{ Bytes int }
		LawSamples []struct{ Port string }
		LawTotals  []struct{ Value float64 }
	}
}

// memory returns the bytes that the elements of an Entry take, at least.
func (c *counted) memory() int64 {
	r := c.Raw
	n := len(r.Unmet)*int(unsafe.Sizeof(result.Unmet{})) + len(r.Flows)*int(unsafe.Sizeof(result.Flow{})) + len(r.Drops)*int(unsafe.Sizeof(result.Drop{})) +
		(len(r.LawSamples)+len(r.LawTotals))*int(unsafe.Sizeof(result.LawSample{}))
	for i := range r.Ports {
		n += int(unsafe.Sizeof(result.Port{})) + len(r.Ports[i].Samples)*int(unsafe.Sizeof(result.Sample{}))
	}
	return int64(n)
}

// Receive reads an entry that another machine encoded, of the present form. It refuses one that is too large, before it takes the
// memory for it.
func Receive(b []byte) (*Entry, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("read a received run: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(z, maxReceived+1))
	if err != nil {
		return nil, fmt.Errorf("read a received run: %w", err)
	}
	if len(text) > maxReceived {
		return nil, fmt.Errorf("read a received run: it has more than %d bytes", maxReceived)
	}
	var c counted
	if err := gob.NewDecoder(bytes.NewReader(text)).Decode(&c); err != nil {
		return nil, fmt.Errorf("read a received run: %w", err)
	}
	if c.Raw == nil {
		return nil, errNoRaw
	}
	if n := c.memory(); n > maxMemory {
		return nil, fmt.Errorf("read a received run: it takes %d bytes of memory, more than %d", n, maxMemory)
	}
	in := bytes.NewReader(text)
	var e Entry
	if err := gob.NewDecoder(in).Decode(&e); err != nil {
		return nil, fmt.Errorf("read a received run: %w", err)
	}
	if in.Len() > 0 || e.Form != form {
		return nil, errors.New("read a received run: it is of another form")
	}
	if e.Raw == nil {
		return nil, errNoRaw
	}
	return &e, nil
}
