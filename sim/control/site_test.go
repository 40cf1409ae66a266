package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/law"
	"weir/law/lawtest"
	"weir/sim/event"
)

// measured is a report whose slice is borrowed: the tests' switch uses the slice again.
type measured struct{ Ports []int }

func (*measured) LawEvent() {}

// order is an action of the tests. It points at memory that the law reuses.
type order struct{ To []int }

func (*order) LawAction() {}

// clockwork ticks every period. It answers a report with the reported numbers, doubled, and a tick with its number.
type clockwork struct {
	period, next time.Duration
	ticks        int
	room         []int
	log          *[]string
}

func (c *clockwork) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	c.room = c.room[:0]
	switch e := e.(type) {
	case law.Tick:
		c.ticks++
		for c.next <= now {
			c.next += c.period
		}
		c.room = append(c.room, -c.ticks)
	case *measured:
		for _, p := range e.Ports {
			c.room = append(c.room, 2*p)
		}
	default:
		return out
	}
	if c.log != nil {
		*c.log = append(*c.log, fmt.Sprintf("%v: %T %v", now, e, c.room))
	}
	return append(out, &order{c.room})
}

func (c *clockwork) Wake() time.Duration { return c.next }

// obeys notes the actions that it carries out.
type obeys struct {
	log  []string
	also func(now event.Time)
	err  error
}

func (o *obeys) Enforce(now event.Time, a law.Action) error {
	o.log = append(o.log, fmt.Sprintf("%v: %v", time.Duration(now), a.(*order).To))
	if o.also != nil {
		o.also(now)
	}
	return o.err
}

func add(t *testing.T, m *Messenger, o SiteOptions) *Site {
	t.Helper()
	s, err := m.Add(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A law at the controller gets ticks when it wants them, and reports when they arrive. Its actions arrive at the switch
// one delay later. Reports and actions do not change when their senders reuse memory.
func TestSite_ControllerAndSwitch(t *testing.T) {
	q := event.NewQueue()
	m, err := New(q, Options{Delay: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	port := &obeys{}
	sw := add(t, m, SiteOptions{Name: "switch", Enforcer: port})
	ms := time.Millisecond
	controller := add(t, m, SiteOptions{
		Name: "controller", Law: lawtest.Checked(t, &clockwork{period: ms, next: ms}, &clockwork{period: ms, next: ms}),
		Route: func(_ law.Action, to []*Site) []*Site { return append(to, sw) },
	})
	borrowed := &measured{Ports: []int{1, 2}}
	at(q, 500_000, func(event.Time) {
		sw.Report(controller, 100, 0, borrowed)
		borrowed.Ports[0] = 99
	})
	at(q, 505_000, func(event.Time) { sw.Report(controller, 100, 0, &measured{Ports: []int{7}}) }) // the law steps before its action has arrived
	q.Run(2500 * event.Microsecond)
	if want := []string{"520µs: [2 4]", "525µs: [14]", "1.01ms: [-1]", "2.01ms: [-2]"}; !slices.Equal(port.log, want) || m.Err() != nil {
		t.Errorf("%q, %v; want %q", port.log, m.Err(), want)
	}
	if c := controller.Counts(); c != (SiteCounts{Steps: 4, Ticks: 2, Actions: 4}) || sw.Counts().Enforced != 4 {
		t.Errorf("%+v, %+v", c, sw.Counts())
	}
}

// A law that needs time for an event decides at its end. Meanwhile events wait, and a newer event replaces an older one
// with the same key from the same site. Events beyond the inbox are dropped. Ticks do not wait.
func TestSite_ServiceAndInbox(t *testing.T) {
	q := event.NewQueue()
	m, err := New(q, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var log []string
	one, two := add(t, m, SiteOptions{Name: "one"}), add(t, m, SiteOptions{Name: "two"})
	controller := add(t, m, SiteOptions{
		Name: "controller", Law: &clockwork{period: 1500 * time.Microsecond, next: 1500 * time.Microsecond, log: &log}, Enforcer: &obeys{},
		Service: 1e6, Inbox: 2,
	})
	for n := range 4 {
		one.Report(controller, 100, 1, &measured{[]int{n}}) // the first is worked on, the others replace one another
	}
	two.Report(controller, 100, 1, &measured{[]int{10}})
	two.Report(controller, 100, 0, &measured{[]int{20}}) // no room
	q.Run(event.Millisecond * 10 / 3)
	want := []string{
		"1ms: *control.measured [0]", "1.5ms: law.Tick [-1]", "2ms: *control.measured [6]", "3ms: law.Tick [-2]", "3ms: *control.measured [20]",
	}
	if !slices.Equal(log, want) {
		t.Errorf("%q, want %q", log, want)
	}
	if c := controller.Counts(); c.Full != 1 || c.Replaced != 2 || c.Steps != 5 || m.Err() != nil {
		t.Errorf("%+v, %v", c, m.Err())
	}
}

// An event that happens while an action is carried out steps the law after its other actions.
func TestSite_EventsOfItsOwnActions(t *testing.T) {
	q := event.NewQueue()
	m, err := New(q, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var log []string
	port := &obeys{}
	s := add(t, m, SiteOptions{Name: "switch", Law: &clockwork{log: &log}, Enforcer: port})
	borrowed, left := &measured{Ports: []int{0}}, 2
	port.also = func(event.Time) {
		if left--; left >= 0 {
			borrowed.Ports[0] = 10 * left
			s.Event(borrowed)
			borrowed.Ports[0] = 99
		}
	}
	s.Event(&measured{Ports: []int{1}})
	if want := []string{"0s: [2]", "0s: [20]", "0s: [0]"}; !slices.Equal(port.log, want) || s.Counts().Steps != 3 {
		t.Errorf("%q, want %q; %q", port.log, want, log)
	}
}

// A law that asks again and again for a time in the past does not stop the clock.
func TestSite_WakeOfThePast(t *testing.T) {
	q := event.NewQueue()
	m, err := New(q, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := add(t, m, SiteOptions{Name: "s", Law: &past{}})
	q.Run(1000)
	if n := s.Counts().Ticks; n != 999 {
		t.Errorf("%d ticks in 1000 ns, the first after 2", n)
	}
}

type past struct{ steps int }

func (p *past) Step(_ time.Duration, _ law.Event, out []law.Action) []law.Action {
	p.steps++
	return out
}

func (p *past) Wake() time.Duration { return 2 }

// An event or action that reaches no site is an error.
func TestSite_WhatGoesNowhere(t *testing.T) {
	for name, c := range map[string]struct {
		controller, sw SiteOptions
		want           string
	}{
		"no route":    {SiteOptions{Law: &clockwork{}, Route: func(_ law.Action, to []*Site) []*Site { return to }}, SiteOptions{}, "no site carries out"},
		"no enforcer": {SiteOptions{Law: &clockwork{}}, SiteOptions{}, "cannot carry out"},
		"no law":      {SiteOptions{}, SiteOptions{}, "but the site has no law"},
		"refused":     {SiteOptions{Law: &clockwork{}, Enforcer: &obeys{err: errors.New("a wall")}}, SiteOptions{}, "a wall"},
	} {
		q := event.NewQueue()
		m, err := New(q, Options{})
		if err != nil {
			t.Fatal(err)
		}
		c.controller.Name, c.sw.Name = "controller", "switch"
		controller, sw := add(t, m, c.controller), add(t, m, c.sw)
		sw.Report(controller, 1, 0, &measured{Ports: []int{1}})
		q.Run(event.Second)
		if err := m.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
