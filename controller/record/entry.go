package record

import (
	"strings"
	"time"

	"weir/law"
)

// Header is the first message of each file.
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
type Entry struct {
	Serial uint64        // from 1; a gap: entries were lost
	Now    time.Duration // on the laws' clock
	Begins []LawBegins   // laws that are made before the event
	Event  law.Event     // nil: Other, or none
	Other  string        // a kind of event that the format does not have
	Cause  uint64        // serial number of the event at the controller, which its grants name
	Steps  []Step        // of the laws that got it
	Ends   bool          // nothing follows: the recording was closed
}

// LawBegins is a law that is made.
type LawBegins struct {
	Law    uint32 // its number in this recording, from 1
	Name   string
	Owner  law.Owner // of its grants
	Params string    // JSON; "": not known, the defaults
}

// Step is what one law did.
type Step struct {
	Law     uint32
	Actions []Action

	raw []byte // Actions as they were read
}

func (c *coder) header(h *Header) {
	c.str(1, "format", &h.Format)
	num(c, 2, "version", &h.Version)
	num(c, 3, "run", &h.Run)
	num(c, 4, "piece", &h.Piece)
	c.str(5, "controller", &h.Controller)
	c.str(6, "weir", &h.Weir)
	signed(c, 7, "began_unix_ns", &h.BeganUnix)
}

func (c *coder) entry(e *Entry) {
	num(c, 1, "serial", &e.Serial)
	signed(c, 2, "now_ns", &e.Now)
	list(c, 3, "begins", "LawBegins", &e.Begins, (*coder).lawBegins)
	if c.mode == encode {
		c.encodeEvent(e.Event, &e.Other)
	}
	kinds(c, eventKinds, &e.Event)
	c.str(4, "other", &e.Other) // a kind of event that is not above, by its name
	list(c, 5, "steps", "Step", &e.Steps, (*coder).step)
	c.flag(6, "ends", &e.Ends)
	num(c, 7, "cause", &e.Cause)
}

func (c *coder) lawBegins(l *LawBegins) {
	num(c, 1, "law", &l.Law)
	c.str(2, "name", &l.Name)
	num(c, 3, "owner", &l.Owner)
	c.str(4, "params", &l.Params)
}

func (c *coder) step(s *Step) {
	num(c, 1, "law", &s.Law)
	if c.mode == decode {
		f, _ := c.one(2, true)
		s.raw = f.bytes
	}
	message(c, 2, "actions", "Actions", s, (*coder).actions)
}

func (c *coder) actions(s *Step) { list(c, 1, "action", "Action", &s.Actions, (*coder).action) }

// Schema returns record.proto.
func Schema() string {
	var b strings.Builder
	b.WriteString(`// The files that a controller writes with the key record. Each is a sequence of messages, each after its length as a varint: a
// Header, then Entries. TestSchema makes this file from the code.
//
// Fields are only added. A number that was used once is never used again.
syntax = "proto3";

package weir.record.v1;

message Header {
`)
	c := &coder{mode: describe, text: &b, done: map[string]bool{"Header": true}}
	c.header(&Header{})
	b.WriteString("}\n")
	later(c, "Entry", (*coder).entry)
	for len(c.further) > 0 {
		next := c.further[0]
		c.further = c.further[1:]
		next()
	}
	return b.String()
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
	p := &Plain{Serial: e.Serial, NowNs: int64(e.Now), Begins: e.Begins, Kind: e.Other, Event: e.Event, Ends: e.Ends}
	if e.Event != nil {
		p.Kind = strings.TrimPrefix(typeName(e.Event), "*")
	}
	for _, s := range e.Steps {
		for _, a := range s.Actions {
			if p.Actions == nil {
				p.Actions = map[uint32][]any{}
			}
			p.Actions[s.Law] = append(p.Actions[s.Law], a.Action)
		}
	}
	return p
}
