package inband

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
)

// Messenger sends commands to the agents whose addresses it knows. A nil Messenger knows none. Its methods may be called by several
// goroutines at a time.
type Messenger struct {
	log    *slog.Logger
	key    Key
	sender *Sender
	run    uint64

	mu      sync.Mutex
	to      map[string]*target // by agent
	counter uint64
	counts  map[string]uint64 // of frames, by result
	buffer  []byte
}

type target struct {
	address MAC
	tagger  *Tagger
}

var errNoFrames = errors.New("the agent takes no frames")

// NewMessenger sends from a device of this namespace, with the controllers' key. log may be nil.
func NewMessenger(device string, key Key, log *slog.Logger) (*Messenger, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s, err := NewSender(device)
	if err != nil {
		return nil, err
	}
	var run [8]byte
	_, _ = rand.Read(run[:]) // never fails
	return &Messenger{log: log, key: key, sender: s, run: binary.BigEndian.Uint64(run[:]), to: map[string]*target{}, counts: map[string]uint64{"sent": 0, "failed": 0}}, nil
}

// Set sets the address of an agent's uplink; nil: the agent takes no frames.
func (m *Messenger) Set(agent string, address []byte) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(address) != len(MAC{}) {
		delete(m.to, agent)
		return
	}
	m.to[agent] = &target{MAC(address), NewTagger(m.key.Of(agent))}
}

// Carries reports whether an agent takes frames.
func (m *Messenger) Carries(agent string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.to[agent] != nil
}

// Carry sends a command.
func (m *Messenger) Carry(agent string, command []byte, off bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	to := m.to[agent]
	if to == nil {
		return errNoFrames
	}
	frame := Frame{To: to.address, From: m.sender.Address(), Type: On, Run: m.run, Counter: m.counter + 1, Command: command}
	if off {
		frame.Type = Off
	}
	b, err := to.tagger.Append(m.buffer[:0], &frame)
	if err == nil {
		m.counter, m.buffer = m.counter+1, b
		err = m.sender.Send(b)
	}
	if err != nil {
		m.counts["failed"]++
		if n := m.counts["failed"]; n&(n-1) == 0 {
			m.log.Warn("a frame cannot be sent: the command goes by the bus", "agent", agent, "error", err, "times", n)
		}
		return err
	}
	m.counts["sent"]++
	return nil
}

// Counts returns how many frames were sent, and how many could not be; nil of a nil Messenger.
func (m *Messenger) Counts() map[string]uint64 {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return map[string]uint64{"sent": m.counts["sent"], "failed": m.counts["failed"]}
}

// Close ends the Messenger. Carry returns an error after it.
func (m *Messenger) Close() {
	if m != nil {
		_ = m.sender.Close()
	}
}
