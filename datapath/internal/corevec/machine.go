// Package corevec runs the events of the test vectors of core's counting, release, groups, edge mode, promises, credits,
// grants, buckets and repairs. The events are C (events.h, credit_events.h). This package calls them as machine code; the kernel programs
// of package coretest
// include them.
package corevec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"weir/datapath/internal/coretest"
	"weir/datapath/internal/vector"
)

// Machines returns the machines that run these vectors, by their law.
// run runs one event: its argument is a pointer to a struct of events.h, as package coretest has it, which the
// event changes.
func Machines(run func(value any) error) map[string]func() vector.Machine {
	return map[string]func() vector.Machine{
		"slots": func() vector.Machine {
			return &machine[coretest.CoreSlotsEvent]{run: run, state: []string{"end_", "port0_", "port1_"}, events: map[string]uint64{
				"take": 1, "leave": 2, "turn": 3, "hears": 4, "open": 5, "opened": 6, "register": 7, "unregister": 8, "sends": 9,
				"finishes": 10, "flows": 11, "openings": 12,
			}}
		},
		"release": func() vector.Machine {
			return &machine[coretest.CoreReleaseEvent]{run: run, state: []string{"port_"}, events: map[string]uint64{
				"tick": 13, "recount": 14, "limit": 15, "stop": 16, "reuse": 17, "lease": 18, "pace": 29,
			}}
		},
		"groups": func() vector.Machine {
			return &machine[coretest.CoreGroupsEvent]{run: run, state: []string{"port_", "granted_"}, events: map[string]uint64{
				"grant": 19, "floor": 20, "assume": 21, "advertises": 22,
			}}
		},
		"edge": func() vector.Machine {
			return &machine[coretest.CoreEdgeEvent]{run: run, state: []string{"end_", "handshake_", "window_"}, events: map[string]uint64{
				"due": 23, "advertise": 24, "left": 25, "syn": 26, "answer": 27, "ack": 28,
			}}
		},
		"credit": func() vector.Machine {
			return &machine[coretest.CoreCreditEvent]{run: run, state: []string{"state_", "answer_"}, events: map[string]uint64{
				"acknowledge": 1, "rest": 2, "used": 3, "counts_other": 4, "other": 5, "refused": 6, "concerns": 7, "turn": 8, "opens": 9,
				"answered": 10, "advance": 11, "fits": 12, "returns": 13, "again": 14,
			}}
		},
		"grant": func() vector.Machine {
			return &machine[coretest.CoreGrantEvent]{run: run, state: []string{"least_"}, events: map[string]uint64{
				"add": 30, "rate": 31, "field": 32, "released": 33, "bit": 34,
			}}
		},
		"bucket": func() vector.Machine {
			return &machine[coretest.CoreBucketEvent]{run: run, events: map[string]uint64{
				"class": 35, "changes": 36, "burst": 37, "quantum": 38, "limit": 39,
			}}
		},
		"arrivals": func() vector.Machine {
			return &machine[coretest.CoreArrivalsEvent]{run: run, state: []string{"flow_"}, events: map[string]uint64{"see": 40, "matter": 41}}
		},
		"repair": func() vector.Machine {
			return &machine[coretest.CoreRepairEvent]{run: run, events: map[string]uint64{"decide": 42, "waits": 43, "again": 44}}
		},
	}
}

// machine runs one law's events. The keys of a line are the fields of the event's struct. A config line has
// those of its field config; an is line those whose names begin with one of state.
type machine[E any] struct {
	run    func(value any) error
	state  []string
	events map[string]uint64
	begun  vector.Fields // config and state
}

// Begin implements vector.Machine.
func (m *machine[E]) Begin(config, state vector.Fields) error {
	m.begun = nil
	for _, f := range config {
		if f.Key != "count" && !strings.HasPrefix(f.Key, "rules_") {
			f.Key = "config_" + f.Key
		}
		m.begun = append(m.begun, f)
	}
	m.begun = append(m.begun, state...)
	return m.begun.Into(new(E))
}

// Do implements vector.Machine.
func (m *machine[E]) Do(event string, args vector.Fields) (state vector.Fields, result uint64, err error) {
	number, known := m.events[event]
	if !known {
		return nil, 0, fmt.Errorf("there is no event %s", event)
	}
	var value E
	all := append(append(vector.Fields{{Key: "event", Value: number}}, m.begun...), args...)
	if err := all.Into(&value); err != nil {
		return nil, 0, err
	}
	if err := m.run(&value); err != nil {
		return nil, 0, err
	}
	m.begun = slices.DeleteFunc(m.begun, func(f vector.Field) bool { return m.isState(f.Key) })
	for _, f := range vector.Of(value) {
		if m.isState(f.Key) {
			state = append(state, f)
		}
	}
	m.begun = append(m.begun, state...)
	return state, reflect.ValueOf(value).FieldByName("Result").Uint(), nil
}

func (m *machine[E]) isState(key string) bool {
	for _, prefix := range m.state {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}
