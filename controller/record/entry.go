package record

import (
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"

	"weir/law"
)

// Header begins each file.
type Header struct {
	Format     string // "weir-recording"
	Version    uint32 // of the format
	Run        uint64 // the same for all files of a recording
	Piece      uint32 // of a recording, from 1
	Controller string // name
	Weir       string // version that wrote it
	BeganUnix  int64  // ns
}

// Entry is one event, and what the laws did with it. An entry at the begin of a later file can repeat the newest inventory: then it
// has the serial number 0.
type Entry entry[Item[law.Event], []Item[law.Action]]

// Step is what one law did.
type Step = step[[]Item[law.Action]]

// written is an entry whose event and actions are encoded: their memory is borrowed.
type written = entry[cbor.RawMessage, cbor.RawMessage]

type entry[E, A any] struct {
	_ struct{} `cbor:",toarray"`

	Serial uint64        // from 1; a gap: entries were lost
	Now    time.Duration // on the laws' clock
	Begins []LawBegins   // laws that are made before the event
	Event  E
	Cause  uint64    // serial number of the event at the controller, which its grants name
	Steps  []step[A] // of the laws that got it
	Ends   bool      // nothing follows: the recording was closed
}

type step[A any] struct {
	_ struct{} `cbor:",toarray"`

	Law     uint32
	Actions A
}

// LawBegins is a law that is made.
type LawBegins struct {
	Law    uint32 // its number in this recording, from 1; 0: it is not recorded
	Name   string
	Owner  law.Owner // of its grants
	Params string    // JSON; "": not known, the defaults
}

// Plain is an entry for people and programs: it becomes JSON.
type Plain struct {
	Serial  uint64           `json:"serial"`
	NowNs   int64            `json:"now_ns"`
	Begins  []LawBegins      `json:"begins,omitempty"`
	Kind    string           `json:"kind,omitempty"`
	Event   law.Event        `json:"event,omitempty"`
	Actions map[uint32][]any `json:"actions,omitempty"` // by law
	Ends    bool             `json:"ends,omitempty"`
}

// Plain returns the entry for JSON.
func (e *Entry) Plain() *Plain {
	p := &Plain{Serial: e.Serial, NowNs: int64(e.Now), Begins: e.Begins, Kind: e.Event.Other, Event: e.Event.Value, Ends: e.Ends}
	if e.Event.Value != nil {
		p.Kind = strings.TrimPrefix(typeName(e.Event.Value), "*")
	}
	for _, s := range e.Steps {
		for _, a := range s.Actions {
			if p.Actions == nil {
				p.Actions = map[uint32][]any{}
			}
			p.Actions[s.Law] = append(p.Actions[s.Law], a.Value)
		}
	}
	return p
}
