package inband

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"math"
	"sync"

	"weir/law"
	"weir/law/telemetry"
)

// Messenger sends commands to the agents whose addresses it knows. A nil Messenger knows none. Its methods may be called by several
// goroutines at a time.
type Messenger struct {
	log    *slog.Logger
	form   Form
	key    Key
	sender *Sender
	run    uint64

	mu      sync.Mutex
	to      map[string]*target // by agent
	counter uint64
	counts  map[string]uint64 // of frames, by result
	buffer  []byte
}

// Target is an agent that takes frames.
type Target struct {
	Address []byte             // MAC address of its uplink; nil: it takes none
	Form    Form               // the only one that it takes
	VMs     map[law.VM][4]byte // IPID: addresses of VMs that have one
}

type target struct {
	address MAC
	tagger  *Tagger
	vms     map[law.VM][4]byte
	rest    map[law.VM]uint64 // IPID: marks that no message had yet, in 1/OneMark of a packet; below mostRest
}

// mostRest is how many marks of a VM may wait for the next message.
const mostRest = 4 * math.MaxUint16 * telemetry.OneMark

var errNoFrames = errors.New("the agent takes no frames")

// NewMessenger sends frames of a form from a device of this namespace, with the controllers' key. log may be nil.
func NewMessenger(device string, form Form, key Key, log *slog.Logger) (*Messenger, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s, err := NewSender(device)
	if err != nil {
		return nil, err
	}
	var run [8]byte
	_, _ = rand.Read(run[:]) // never fails
	return &Messenger{log: log, form: form, key: key, sender: s, run: binary.BigEndian.Uint64(run[:]), to: map[string]*target{}, counts: map[string]uint64{"sent": 0, "failed": 0}}, nil
}

// Set sets how an agent takes frames. An agent that takes none, or another form, gets all by the bus.
func (m *Messenger) Set(agent string, to Target) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(to.Address) != len(MAC{}) || to.Form != m.form {
		delete(m.to, agent)
		return
	}
	t := &target{address: MAC(to.Address), tagger: NewTagger(m.form, m.key.Of(agent)), vms: to.VMs, rest: map[law.VM]uint64{}}
	if was := m.to[agent]; was != nil {
		for vm := range to.VMs {
			t.rest[vm] = was.rest[vm]
		}
	}
	m.to[agent] = t
}

// Carries returns the form of frames that an agent takes; "": none.
func (m *Messenger) Carries(agent string) Form {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.to[agent] == nil {
		return ""
	}
	return m.form
}

// Carry sends a command.
func (m *Messenger) Carry(agent string, command []byte, off bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	to := m.to[agent]
	if to == nil {
		return errNoFrames
	}
	frame := Frame{Command: command}
	if m.form == Ethernet {
		frame.Type = On
		if off {
			frame.Type = Off
		}
	}
	return m.send(agent, to, &frame)
}

// CarryMarks sends marks of a VM in the form IPID. Each message has whole packets, 65535 at most; the rest goes with the next one, and
// less than a packet needs none. command makes the message's command, which has no grants. sent: the marks were taken. If not, they
// go by the bus.
func (m *Messenger) CarryMarks(agent string, vm law.VM, marks uint64, command func() ([]byte, error)) (sent bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	to := m.to[agent]
	if to == nil {
		return false, nil
	}
	address, known := to.vms[vm]
	if !known {
		return false, nil
	}
	all := to.rest[vm] + min(marks, mostRest)
	whole := min(all/telemetry.OneMark, math.MaxUint16)
	if whole == 0 {
		to.rest[vm] = all
		return true, nil
	}
	b, err := command()
	if err != nil {
		return false, err
	}
	if err := m.send(agent, to, &Frame{VM: address, Marks: uint16(whole), Command: b}); err != nil {
		return false, nil
	}
	to.rest[vm] = min(all-whole*telemetry.OneMark, mostRest)
	return true, nil
}

// send sends a frame. The caller holds mu.
func (m *Messenger) send(agent string, to *target, f *Frame) error {
	f.To, f.From, f.Source, f.Run, f.Counter = to.address, m.sender.Address(), m.sender.IPv4(), m.run, m.counter+1
	b, err := to.tagger.Append(m.buffer[:0], f)
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
