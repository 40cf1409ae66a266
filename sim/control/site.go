package control

import (
	"errors"
	"fmt"
	"time"

	"weir/law"
	"weir/sim/event"
)

// Enforcer carries out what laws decide, at the site where it takes effect: a port, a host. An action of a kind that it
// does not know is an error.
type Enforcer interface {
	Enforce(now event.Time, a law.Action) error
}

// SiteOptions say what a site is.
type SiteOptions struct {
	// Name tells the site from all others. Its random numbers follow from it.
	Name string
	// Law steps at the site; nil: the site only reports and enforces.
	Law law.Law
	// Enforcer carries out actions at the site; nil: none can be.
	Enforcer Enforcer
	// Route gives the sites where an action of Law is carried out; nil: all are carried out here. An action that goes
	// nowhere is an error: Messenger.Err.
	Route func(a law.Action, to []*Site) []*Site
	// CommandBytes is the size of a message with an action; 0: 128.
	CommandBytes int
	// Service is how long the law needs for an event that a message brings: events wait for that, and actions are decided
	// when it is over. 0: no time.
	Service law.Duration
	// Inbox is how many events may wait for the law; 0: 1024. What does not fit is dropped.
	Inbox int
}

// commandBytes is the size of a command where nothing says otherwise: about that of a grant with its subject on the bus.
const commandBytes = 128

// Site is a place in the control plane: a switch, a host, a controller.
type Site struct {
	m      *Messenger
	o      SiteOptions
	name   string
	number int

	line    event.Event // a message is on the line
	sending *message
	out     box[*message]

	in      box[law.Event]
	service event.Event // the law is at work on working
	working law.Event
	tick    event.Event

	stepping bool
	events   []law.Event // happened here during a step
	actions  []law.Action
	to       []*Site
	counts   SiteCounts
}

// SiteCounts is what happened at a site.
type SiteCounts struct {
	Steps    int64 // of the law, ticks among them
	Ticks    int64
	Actions  int64 // that the law decided
	Enforced int64
	Unrouted int64 // actions that no site carries out
	Full     int64 // events that the inbox had no room for
	Replaced int64 // events of which a newer one came before the law was at them
}

// Add makes a site. Its law, if there is one, is asked at once when it wants its first tick.
func (m *Messenger) Add(o SiteOptions) (*Site, error) {
	switch {
	case o.Name == "":
		return nil, errors.New("a site without a name")
	case o.Service < 0 || o.Service > maxTime:
		return nil, fmt.Errorf("site %s: a law that needs %v for an event: 0 to %v", o.Name, o.Service, maxTime)
	case o.Inbox < 0 || o.Inbox > maxQueue:
		return nil, fmt.Errorf("site %s: an inbox of %d events: 1 to %d, or 0 for %d", o.Name, o.Inbox, maxQueue, queueMost)
	case o.CommandBytes < 0 || o.CommandBytes > maxMessage:
		return nil, fmt.Errorf("site %s: commands of %d bytes: 1 to %d, or 0 for %d", o.Name, o.CommandBytes, maxMessage, commandBytes)
	}
	for _, s := range m.sites {
		if s.name == o.Name {
			return nil, fmt.Errorf("there are two sites %s", o.Name)
		}
	}
	if o.Inbox == 0 {
		o.Inbox = queueMost
	}
	if o.CommandBytes == 0 {
		o.CommandBytes = commandBytes
	}
	s := &Site{m: m, o: o, name: o.Name, number: len(m.sites), out: box[*message]{most: m.o.Queue}, in: box[law.Event]{most: o.Inbox}}
	s.line.Init((*sent)(s))
	s.service.Init((*served)(s))
	s.tick.Init((*ticked)(s))
	m.sites = append(m.sites, s)
	s.wake(m.queue.Now())
	return s, nil
}

// maxMessage is the largest message, in bytes.
const maxMessage = 1 << 20

// Name is the site's name.
func (s *Site) Name() string { return s.name }

// Counts gives the counts as of now.
func (s *Site) Counts() SiteCounts { return s.counts }

// Report sends an event to the law of another site, in a message of that many bytes (1 to 1 MiB). A key other than 0 lets
// it take the place of an older report to that site with the same key, as long as that waits: for the line, or in the
// other site's inbox. What the event points at may be used again at once.
func (s *Site) Report(to *Site, bytes int, key uint64, e law.Event) {
	g := s.m.newMessage()
	g.from, g.to, g.key, g.bytes, g.event = s, to, key, size(bytes), law.Own(e)
	s.m.send(g)
}

// command sends an action to the site that carries it out.
func (s *Site) command(to *Site, a law.Action) {
	g := s.m.newMessage()
	g.from, g.to, g.key, g.bytes, g.action = s, to, 0, size(s.o.CommandBytes), law.Own(a)
	s.m.send(g)
}

func size(bytes int) int64 { return int64(min(max(bytes, 1), maxMessage)) }

// Event lets the law of this site step with what has happened here: no message, no delay. While the law is at work, which
// is so when carrying out one of its actions makes something happen, the event is kept until it is done.
func (s *Site) Event(e law.Event) {
	if s.o.Law == nil {
		return
	}
	if s.stepping {
		s.events = append(s.events, law.Own(e))
		return
	}
	s.step(e)
	for i := 0; i < len(s.events); i++ { // may grow meanwhile
		s.step(s.events[i])
	}
	clear(s.events)
	s.events = s.events[:0]
}

// step is one step of the law, and what it decides.
func (s *Site) step(e law.Event) {
	s.stepping = true
	now := s.m.queue.Now()
	s.counts.Steps++
	s.actions = s.o.Law.Step(time.Duration(now), e, s.actions[:0])
	s.wake(now)
	for _, a := range s.actions {
		s.counts.Actions++
		s.route(a, now)
	}
	clear(s.actions)
	s.stepping = false
}

// route brings an action to where it is carried out.
func (s *Site) route(a law.Action, now event.Time) {
	if s.o.Route == nil {
		s.enforce(a, now)
		return
	}
	s.to = s.o.Route(a, s.to[:0])
	if len(s.to) == 0 {
		s.counts.Unrouted++
		s.m.fail(fmt.Errorf("site %s: no site carries out %T", s.name, a))
	}
	for _, to := range s.to {
		if to == s {
			s.enforce(a, now)
		} else {
			s.command(to, a)
		}
	}
}

// enforce carries an action out here.
func (s *Site) enforce(a law.Action, now event.Time) {
	if s.o.Enforcer == nil {
		s.counts.Unrouted++
		s.m.fail(fmt.Errorf("site %s: it cannot carry out %T", s.name, a))
		return
	}
	if err := s.o.Enforcer.Enforce(now, a); err != nil {
		s.m.fail(fmt.Errorf("site %s: %w", s.name, err))
		return
	}
	s.counts.Enforced++
}

// arrive takes an event that a message brought.
func (s *Site) arrive(from *Site, key uint64, e law.Event, now event.Time) {
	switch {
	case s.o.Law == nil:
		s.m.fail(fmt.Errorf("site %s: a report %T from %s, and no law", s.name, e, from.name))
		return
	case s.o.Service == 0:
		s.Event(e)
		return
	}
	switch old, ok := s.in.put(key, from, e); {
	case !ok:
		s.counts.Full++
	case old != nil:
		s.counts.Replaced++
	}
	s.serve(now)
}

// serve begins with the next event in the inbox.
func (s *Site) serve(now event.Time) {
	if s.in.len() > 0 && !s.service.Pending() {
		s.working = s.in.take()
		s.m.queue.Set(&s.service, now+event.Time(s.o.Service))
	}
}

// served is the end of the law's work on an event.
type served Site

// Happen lets the law decide.
func (t *served) Happen(_ *event.Event, now event.Time) {
	s := (*Site)(t)
	e := s.working
	s.working = nil
	s.serve(now)
	s.Event(e)
}

// wake sets the next tick. A law that asks for a time that is over gets its tick a nanosecond later: the clock goes on.
func (s *Site) wake(now event.Time) {
	if s.o.Law == nil {
		return
	}
	at := event.Time(s.o.Law.Wake())
	if at == 0 {
		s.m.queue.Stop(&s.tick)
		return
	}
	if !s.tick.Pending() || s.tick.At() != at {
		s.m.queue.Set(&s.tick, max(at, now+1))
	}
}

// ticked is the time for a tick.
type ticked Site

// Happen gives the law its tick.
func (t *ticked) Happen(*event.Event, event.Time) {
	s := (*Site)(t)
	s.counts.Ticks++
	s.Event(law.Tick{})
}
