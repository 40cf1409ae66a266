// Package inband carries commands from a controller to a hypervisor's agent in Ethernet frames, as the papers do (SPEC 5), next to
// the bus. A frame says ON or OFF by its EtherType. The other form is an IP packet of protocol 143 with the marks in its identification.
// Their payload is text that nobody reads, so any machine of the network can forge them. Here the payload is a command of the bus, with
// a counter and a tag.
//
//	frame.go      the frame: append, decode
//	ip.go         its forms that are IP packets
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
	"slices"
)

// EtherTypes. On + n is the paper's ON with a window scale of n; a host of Weir knows the scale of each connection, so it reads
// none. Off: all grants of the command end.
const (
	On       = 0x7a00
	Off      = 0x7a0f
	ShiftMax = 14
)

// Form is what a frame looks like to the network.
type Form string

// The forms, as files name them.
const (
	Ethernet Form = "in-band" // an EtherType of its own
	IP       Form = "ip-143"  // IPv4 with protocol 143
	IPID     Form = "ip-id"   // Listing 9: IP, for one VM, with its marks in the identification (GC-5, GC-7)
)

// Forms lists all forms.
func Forms() []Form { return []Form{Ethernet, IP, IPID} }

// Named returns whether a file's word is a form.
func Named(name string) bool { return slices.Contains(Forms(), Form(name)) }

// The frame of the form Ethernet, all numbers big-endian. IP forms have an IPv4 header before the version (ip.go):
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
	ethernetBytes                                    = 14
	versionAt, lengthAt, runAt, counterAt, commandAt = 0, 2, 4, 12, 20 // behind the headers

	version  = 1
	tagBytes = 16
	minFrame = 60
	maxFrame = 1514 // without a VLAN tag

	// MaxCommand is the most bytes of a command, in any form.
	MaxCommand = maxFrame - ethernetBytes - ipBytes - commandAt - tagBytes
)

// MAC is an Ethernet address.
type MAC [6]byte

// Frame is what a frame carries.
type Frame struct {
	To, From MAC
	Type     uint16  // On to On + ShiftMax, or Off; IP forms: 0
	Source   [4]byte // IP forms: the controller's IPv4 address; zeros: it has none
	VM       [4]byte // IPID: the VM's IPv4 address
	Marks    uint16  // IPID: marked packets, at least 1
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

// Tagger makes and checks frames of a form with a key. It must not be used by two goroutines at a time.
type Tagger struct {
	form Form
	hash hash.Hash
	sum  [sha256.Size]byte
}

// NewTagger returns one for a form and a key.
func NewTagger(form Form, k Key) *Tagger {
	return &Tagger{form: form, hash: hmac.New(sha256.New, k[:])}
}

// headers is how many bytes come before the version.
func (t *Tagger) headers() int {
	if t.form == Ethernet {
		return ethernetBytes
	}
	return ethernetBytes + ipBytes
}

func (t *Tagger) tag(b []byte) []byte {
	t.hash.Reset()
	if t.form != Ethernet { // switches change these
		_, _ = t.hash.Write(b[:tosAt])
		_, _ = t.hash.Write(b[tosAt+1 : checksumAt])
		b = b[checksumAt+2:]
	}
	_, _ = t.hash.Write(b)
	return t.hash.Sum(t.sum[:0])[:tagBytes]
}

// Append appends the frame to b. The error is that the command is too long, or that the form has no such frame.
func (t *Tagger) Append(b []byte, f *Frame) ([]byte, error) {
	if len(f.Command) == 0 || len(f.Command) > MaxCommand {
		return b, fmt.Errorf("a command of %d bytes, want 1 to %d", len(f.Command), MaxCommand)
	}
	if err := t.fits(f); err != nil {
		return b, err
	}
	begin := len(b)
	b = append(append(b, f.To[:]...), f.From[:]...)
	if t.form == Ethernet {
		b = binary.BigEndian.AppendUint16(b, f.Type)
	} else {
		b = t.appendIP(b, f)
	}
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

// fits returns an error if the form cannot have a frame.
func (t *Tagger) fits(f *Frame) error {
	switch {
	case t.form == Ethernet && !ours(f.Type):
		return fmt.Errorf("the EtherType %#x", f.Type)
	case (t.form == IPID) != (f.Marks > 0):
		return fmt.Errorf("%d marks in the form %s", f.Marks, t.form)
	}
	return nil
}

func ours(ethertype uint16) bool {
	return ethertype >= On && ethertype <= On+ShiftMax || ethertype == Off
}

// Reason is why a frame is refused.
type Reason string

// The reasons, as they are counted.
const (
	Taken     Reason = ""
	Malformed Reason = "malformed" // too short, another version, or of another form
	Elsewhere Reason = "address"   // for another machine, or no VM of this one
	Routed    Reason = "routed"    // IP forms: a router passed it on
	Forged    Reason = "tag"
	Replayed  Reason = "replayed" // this or a later frame of the run was taken
)

// Decode reads a frame and checks its tag. The command is part of b.
func (t *Tagger) Decode(b []byte) (f Frame, why Reason) {
	h := t.headers()
	if len(b) < h+commandAt+tagBytes {
		return f, Malformed
	}
	body := b[h:]
	n := int(binary.BigEndian.Uint16(body[lengthAt:]))
	if body[versionAt] != version || body[versionAt+1] != 0 || n == 0 || n > len(body)-commandAt-tagBytes {
		return f, Malformed
	}
	f.Type = binary.BigEndian.Uint16(b[ethernetBytes-2:])
	if t.form == Ethernet && !ours(f.Type) {
		return f, Malformed
	}
	if t.form != Ethernet {
		if why := t.readIP(b, &f, commandAt+n+tagBytes); why != Taken {
			return f, why
		}
	}
	end := h + commandAt + n
	if !hmac.Equal(t.tag(b[:end]), b[end:end+tagBytes]) {
		return f, Forged
	}
	copy(f.To[:], b)
	copy(f.From[:], b[6:])
	f.Run, f.Counter = binary.BigEndian.Uint64(body[runAt:]), binary.BigEndian.Uint64(body[counterAt:])
	f.Command = body[commandAt : commandAt+n : commandAt+n]
	return f, Taken
}
