package control

import (
	"errors"
	"fmt"
	"time"

	"weir/law"
	"weir/sim/event"
)

// Enforcer carries out the actions of laws at a port or host. It returns an error for an action of an unknown kind.
type Enforcer interface {
	Enforce(now event.Time, a law.Action) error
}

// SiteOptions describe a site.
type SiteOptions struct {
	// Name identifies the site. Its random numbers follow from it.
	Name string
	// Law steps at the site; nil: the site only reports and enforces.
	Law law.Law
	// Enforcer carries out actions at the site; nil: the site accepts none.
	Enforcer Enforcer
	// Route appends the sites where an action of Law is carried out; nil: all are carried out here. An action without a
	// site is an error: Messenger.Err.
	Route func(a law.Action, to []*Site) []*Site
	// CommandBytes is the size of a message with an action; 0: 128.
	CommandBytes int
	// Service is how long the law needs for an event that a message brings; 0: no time. Events wait meanwhile, and the
	// actions are decided at the end.
	Service law.Duration
	// Inbox is how many events may wait for the law; 0: 1024. Further events are dropped.
	Inbox int
}

// commandBytes is the default size of a command: about that of a grant with its subject on the bus.
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
	service event.Event // the law processes working
	working law.Event
	tick    event.Event

	stepping bool
	events   []law.Event // events that happened here during a step
	actions  []law.Action
	to       []*Site
	counts   SiteCounts
}

// SiteCounts is what happened at a site.
type SiteCounts struct {
	Steps    int64 // of the law, including ticks
	Ticks    int64
	Actions  int64 // decided by the law
	Enforced int64
	Unrouted int64 // actions that no site carries out
	Full     int64 // events that found the inbox full
	Replaced int64 // events that a newer one replaced before the law processed them
}

// Add adds a site, and asks its law, if there is one, when it wants its first tick.
func (m *Messenger) Add(o SiteOptions) (*Site, error) {
	switch {
	case o.Name == "":
		return nil, errors.New("control: a site has no name: set Name")
	case o.Service < 0 || o.Service > maxTime:
		return nil, fmt.Errorf("site %s: service time %v must be from 0 to %v", o.Name, o.Service, maxTime)
	case o.Inbox < 0 || o.Inbox > maxQueue:
		return nil, fmt.Errorf("site %s: inbox of %d events: set 1 to %d, or 0 for %d", o.Name, o.Inbox, maxQueue, queueMost)
	case o.CommandBytes < 0 || o.CommandBytes > maxMessage:
		return nil, fmt.Errorf("site %s: commands of %d bytes: set 1 to %d, or 0 for %d", o.Name, o.CommandBytes, maxMessage, commandBytes)
	}
	if m.names[o.Name] {
		return nil, fmt.Errorf("control: there are two sites named %s: names must differ", o.Name)
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
	m.names[o.Name] = true
	s.wake(m.queue.Now())
	return s, nil
}

// maxMessage is the largest message, in bytes.
const maxMessage = 1 << 20

// Name is the site's name.
func (s *Site) Name() string { return s.name }

// Counts returns the counts as of now.
func (s *Site) Counts() SiteCounts { return s.counts }

// Report sends an event to the law of another site, in a message of that many bytes (1 to 1 MiB). A report with a key
// other than 0 replaces an older one to that site with the same key, if that still waits for the line or in the other
// site's inbox. The caller may reuse the event's memory at once.
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

// Event has the law of this site process an event that happened here, without message or delay. If the law is already
// processing (carrying out its action made something happen), the event waits until it is done.
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

// step runs one step of the law, and routes the actions that it decides.
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

// route sends an action to the sites that carry it out.
func (s *Site) route(a law.Action, now event.Time) {
	if s.o.Route == nil {
		s.enforce(a, now)
		return
	}
	s.to = s.o.Route(a, s.to[:0])
	if len(s.to) == 0 {
		s.counts.Unrouted++
		s.m.fail(fmt.Errorf("site %s: no site carries out %T: name one in Route", s.name, a))
	}
	for _, to := range s.to {
		if to == s {
			s.enforce(a, now)
		} else {
			s.command(to, a)
		}
	}
}

// enforce carries out an action at this site.
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

// arrive processes an event that a message brought.
func (s *Site) arrive(from *Site, key uint64, e law.Event, now event.Time) {
	switch {
	case s.o.Law == nil:
		s.m.fail(fmt.Errorf("site %s: report %T from %s, but the site has no law", s.name, e, from.name))
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

// serve begins to process the next event in the inbox.
func (s *Site) serve(now event.Time) {
	if s.in.len() > 0 && !s.service.Pending() {
		s.working = s.in.take()
		s.m.queue.Set(&s.service, now+event.Time(s.o.Service))
	}
}

// served is the end of the service time of an event.
type served Site

// Happen has the law process the event.
func (t *served) Happen(_ *event.Event, now event.Time) {
	s := (*Site)(t)
	e := s.working
	s.working = nil
	s.serve(now)
	s.Event(e)
}

// wake sets the next tick. If a law asks for a time in the past, the tick comes a nanosecond later, so that the clock
// advances.
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
