package bus

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"weir/bus/lease"
	"weir/internal/replace"
)

// TermFile stores the highest term that an agent has seen, or that a controller has drawn.
type TermFile struct{ Path string }

// Load returns what Save wrote last; the zero value if there is no file.
func (f TermFile) Load() (lease.Seen, error) {
	var s lease.Seen
	b, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read the highest term: %w; remove %s if no other controller can be active", err, f.Path)
	}
	return s, nil
}

// Save replaces the file. The new one is on disk when Save returns.
func (f TermFile) Save(s lease.Seen) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return replace.Bytes(f.Path, 0o600, b)
}

// nonce returns a random number that is not 0.
func nonce() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:]) | 1
}
