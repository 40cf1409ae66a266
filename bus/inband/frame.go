// Package inband carries commands from a controller to a hypervisor's agent in Ethernet frames, as the papers do (SPEC 5), next to
// the bus. The paper's frame says ON or OFF by its EtherType, and its payload is text that nobody reads. So any machine of the
// network can forge it. Here the payload is a command of the bus, with a counter and a tag.
//
//	frame.go      the frame: append, decode
//	replay.go     which frames a receiver takes
//	socket.go     packet sockets of a device
//	messenger.go  sends commands to agents by their names
package inband

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
)

// EtherTypes. On + n is the paper's ON with a window scale of n; a host of Weir knows the scale of each connection, so it reads
// none. Off: all grants of the command end.
const (
	On       = 0x7a00
	Off      = 0x7a0f
	ShiftMax = 14
)

// The frame, all numbers big-endian:
//
//	 0  6  destination: the uplink of the hypervisor. The paper's is the VM
//	 6  6  source: the controller's port
//	12  2  EtherType
//	14  1  version, 1
//	15  1  0
//	16  2  n: bytes of the command
//	18  8  run: of the controller, drawn at random when it starts
//	26  8  counter: rises with each frame of a run
//	34  n  command: weir.v1.Command
//	   16  tag: the first half of the HMAC-SHA-256 of all bytes before it
//	       zeros, up to 60 bytes
const (
	versionAt, lengthAt, runAt, counterAt, commandAt = 14, 16, 18, 26, 34

	version  = 1
	tagBytes = 16
	minFrame = 60
	maxFrame = 1514 // without a VLAN tag

	// MaxCommand is the most bytes of a command.
	MaxCommand = maxFrame - commandAt - tagBytes
)

// MAC is an Ethernet address.
type MAC [6]byte

// Frame is what a frame carries.
type Frame struct {
	To, From MAC
	Type     uint16 // On to On + ShiftMax, or Off
	Run      uint64
	Counter  uint64
	Command  []byte
}

// KeyBytes is the length of a key.
const KeyBytes = 32

// Key is shared by the controllers and one agent.
type Key [KeyBytes]byte

// Of returns the key of an agent, from that of the controllers. So an agent cannot forge frames for another.
func (k Key) Of(agent string) (out Key) {
	h := hmac.New(sha256.New, k[:])
	_, _ = h.Write([]byte("weir in-band agent/" + agent)) // a hash takes all
	h.Sum(out[:0])
	return out
}

// Tagger calculates tags with a key. It must not be used by two goroutines at a time.
type Tagger struct {
	hash hash.Hash
	sum  [sha256.Size]byte
}

// NewTagger returns one for a key.
func NewTagger(k Key) *Tagger { return &Tagger{hash: hmac.New(sha256.New, k[:])} }

func (t *Tagger) tag(b []byte) []byte {
	t.hash.Reset()
	_, _ = t.hash.Write(b)
	return t.hash.Sum(t.sum[:0])[:tagBytes]
}

// Append appends the frame to b. The error is that the command is too long, or the EtherType is none of ours.
func (t *Tagger) Append(b []byte, f *Frame) ([]byte, error) {
	if len(f.Command) == 0 || len(f.Command) > MaxCommand {
		return b, fmt.Errorf("a command of %d bytes, want 1 to %d", len(f.Command), MaxCommand)
	}
	if !ours(f.Type) {
		return b, fmt.Errorf("the EtherType %#x", f.Type)
	}
	begin := len(b)
	b = append(append(b, f.To[:]...), f.From[:]...)
	b = binary.BigEndian.AppendUint16(b, f.Type)
	b = append(b, version, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(f.Command)))
	b = binary.BigEndian.AppendUint64(b, f.Run)
	b = binary.BigEndian.AppendUint64(b, f.Counter)
	b = append(b, f.Command...)
	b = append(b, t.tag(b[begin:])...)
	if short := begin + minFrame - len(b); short > 0 {
		b = append(b, make([]byte, short)...)
	}
	return b, nil
}

func ours(ethertype uint16) bool {
	return ethertype >= On && ethertype <= On+ShiftMax || ethertype == Off
}

// Reason is why a frame is refused.
type Reason string

// The reasons, as they are counted.
const (
	Taken     Reason = ""
	Malformed Reason = "malformed" // too short, another version, or of another EtherType
	Elsewhere Reason = "address"   // for another machine
	Forged    Reason = "tag"
	Replayed  Reason = "replayed" // this or a later frame of the run was taken
)

// Decode reads a frame and checks its tag. The command is part of b.
func (t *Tagger) Decode(b []byte) (f Frame, why Reason) {
	if len(b) < commandAt+tagBytes || b[versionAt] != version || b[versionAt+1] != 0 {
		return f, Malformed
	}
	n := int(binary.BigEndian.Uint16(b[lengthAt:]))
	f.Type = binary.BigEndian.Uint16(b[12:])
	if n == 0 || n > len(b)-commandAt-tagBytes || !ours(f.Type) {
		return f, Malformed
	}
	end := commandAt + n
	if !hmac.Equal(t.tag(b[:end]), b[end:end+tagBytes]) {
		return f, Forged
	}
	copy(f.To[:], b)
	copy(f.From[:], b[6:])
	f.Run, f.Counter = binary.BigEndian.Uint64(b[runAt:]), binary.BigEndian.Uint64(b[counterAt:])
	f.Command = b[commandAt:end:end]
	return f, Taken
}
