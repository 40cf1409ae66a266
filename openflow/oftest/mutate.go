package oftest

import (
	"encoding/binary"
	"math/rand/v2"

	of "weir/openflow"
)

// Mutator makes messages that nobody should send, out of those that somebody may. The same seed gives the same ones.
type Mutator struct {
	corpus [][]byte
	source rand.PCG
	rng    *rand.Rand
	buf    []byte
}

// NewMutator starts from a corpus.
func NewMutator(corpus [][]byte) *Mutator {
	m := &Mutator{corpus: corpus, buf: make([]byte, 0, of.MaxLen)}
	m.rng = rand.New(&m.source)
	return m
}

// Message returns trial n of a seed: random, mutated or cut. It is valid until the next call.
func (m *Mutator) Message(seed, n uint64) []byte {
	m.source.Seed(seed, n)
	switch kind := m.rng.IntN(8); kind {
	case 0:
		m.random()
	case 1:
		m.buf = append(m.buf[:0], m.pick()...)
		m.cut()
	case 2:
		m.mutate()
		m.cut()
	default:
		m.mutate()
	}
	if m.rng.IntN(8) > 0 && len(m.buf) >= of.HeaderLen { // else a header that lies
		binary.BigEndian.PutUint16(m.buf[2:], uint16(len(m.buf)))
	}
	return m.buf
}

func (m *Mutator) pick() []byte { return m.corpus[m.rng.IntN(len(m.corpus))] }

// random returns a header of a type that there is, and any bytes.
func (m *Mutator) random() {
	m.buf = append(m.buf[:0], of.Version13, byte(m.rng.IntN(32)), 0, 0, 0, 0, 0, 1)
	n := m.rng.IntN(200)
	if m.rng.IntN(1000) == 0 {
		n = m.rng.IntN(of.MaxLen - of.HeaderLen)
	}
	for range n {
		m.buf = append(m.buf, byte(m.rng.Uint32()))
	}
}

func (m *Mutator) cut() {
	m.buf = m.buf[:m.rng.IntN(len(m.buf)+1)]
}

var lengths = [...]uint16{0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 24, 40, 48, 56, 64, 112, 255, 256, 0x7fff, 0x8000, 0xfff8, 0xffff}

// mutate changes a few places of a message of the corpus.
func (m *Mutator) mutate() {
	m.buf = append(m.buf[:0], m.pick()...)
	for range 1 + m.rng.IntN(4) {
		if len(m.buf) <= of.HeaderLen {
			return
		}
		at := of.HeaderLen + m.rng.IntN(len(m.buf)-of.HeaderLen)
		switch m.rng.IntN(6) {
		case 0:
			m.buf[at] ^= 1 << m.rng.IntN(8)
		case 1:
			m.buf[at] = byte(m.rng.Uint32())
		case 2, 3: // two bytes where a length or type may be
			if at &^= 1; at+2 <= len(m.buf) {
				binary.BigEndian.PutUint16(m.buf[at:], lengths[m.rng.IntN(len(lengths))])
			}
		case 4: // a piece of another message over it, or into it
			m.splice(at)
		case 5: // a piece less
			n := min(len(m.buf)-at, 1+m.rng.IntN(16))
			m.buf = append(m.buf[:at], m.buf[at+n:]...)
		}
	}
}

func (m *Mutator) splice(at int) {
	from := m.pick()
	i := m.rng.IntN(len(from))
	piece := from[i:min(len(from), i+1+m.rng.IntN(64))]
	if m.rng.IntN(2) == 0 {
		copy(m.buf[at:], piece)
		return
	}
	if len(m.buf)+len(piece) > of.MaxLen {
		return
	}
	m.buf = append(m.buf, piece...)
	copy(m.buf[at+len(piece):], m.buf[at:len(m.buf)-len(piece)])
	copy(m.buf[at:], piece)
}
