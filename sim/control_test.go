package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/experiment"
	"weir/law"
	"weir/law/droptail"
	"weir/sim/control"
	"weir/sim/event"
	"weir/sim/laws"
	"weir/sim/network"
)

// granter is a law of a controller that sends a grant each millisecond. The grant's value is the time of its decision.
type granter struct{ next time.Duration }

func (g *granter) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	if _, tick := e.(law.Tick); !tick {
		return out
	}
	g.next = now + time.Millisecond
	return append(out, law.Grant{Kind: law.RateGrant, Value: uint64(now)})
}

func (g *granter) Wake() time.Duration { return g.next }

// granted is a host that records how long each grant took.
type granted struct {
	laws.Quiet
	controller *control.Site
	took       []time.Duration
}

func (g *granted) Enforce(now event.Time, a law.Action) error {
	g.took = append(g.took, time.Duration(now)-time.Duration(a.(law.Grant).Value))
	return nil
}

const controlFile = `id: controlled
duration: 1s
seeds: [1]
worlds: [lab, sim]
topology: {kind: dumbbell, senders: 1, receivers: 1, hypervisors: false}
network: {rate: 10Mbit, rtt: 400us, buffer: 45KB}
traffic: [{name: f, from: sender1, to: receiver1, pattern: bulk, stop: 1s}]
schemes: [{name: droptail}, {name: granter}]
`

// An experiment file names a law of a controller, and how its messages travel: with a delay, a jitter and losses. Without
// the keys they take half a round trip. A scheme without such a law has no control plane.
func TestRun_ControllerLaw(t *testing.T) {
	var last *granted
	put := func(n *network.Network, r *experiment.Run, name string) (laws.Attached, error) {
		m, err := laws.NewMessenger(n, r, name)
		if err != nil {
			return nil, err
		}
		last = &granted{}
		host, err := m.Add(control.SiteOptions{Name: "sender1", Enforcer: last})
		if err != nil {
			return nil, err
		}
		last.controller, err = m.Add(control.SiteOptions{
			Name: "controller", Law: &granter{next: 1},
			Route: func(_ law.Action, to []*control.Site) []*control.Site { return append(to, host) },
		})
		return last, err
	}
	spec := law.Spec{Name: "granter", Worlds: law.BothWorlds(), Sites: []law.Site{law.Controller, law.Uplink}, Params: func() any { return &struct{}{} }}
	all := experiment.NewLaws(experiment.Law{Spec: droptail.Spec(), Built: law.BothWorlds()}, experiment.Law{Spec: spec, Built: law.BothWorlds()})
	world := &World{Laws: laws.Laws{"droptail": laws.DropTail(), "granter": {Put: put}}}

	for _, row := range []struct {
		set         []string
		least, most time.Duration
		loss        float64
	}{
		{nil, 200 * time.Microsecond, 200 * time.Microsecond, 0},
		{[]string{"network.control_delay=0s"}, 0, 0, 0},
		{[]string{"network.control_delay=20ms", "network.control_jitter=5ms", "network.control_loss=0.5"}, 20 * time.Millisecond, 25 * time.Millisecond, 0.5},
		{[]string{"network.control_jitter=5ms"}, 200 * time.Microsecond, 5200 * time.Microsecond, 0},
	} {
		f, err := all.Parse("controlled.yaml", []byte(controlFile))
		if err == nil {
			f, err = f.With(row.set)
		}
		if err != nil {
			t.Fatal(err)
		}
		plan, err := f.Plan(experiment.Options{Worlds: []string{experiment.WorldSim}})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range plan.Runs {
			if r.Scheme == "droptail" && r.Config.Control != nil {
				t.Errorf("%v: a scheme without a controller has a control plane: %+v", row.set, r.Config.Control)
			}
			if _, err := world.Run(t.Context(), r, quiet{}); err != nil {
				t.Fatalf("%v, %s: %v", row.set, r.Scheme, err)
			}
		}
		sent, arrived := float64(last.controller.Counts().Actions), float64(len(last.took))
		lost := 1 - arrived/(sent-float64(row.most)/1e6) // those of the last moments are on the way
		// Of 1000 messages half are lost, with a standard deviation of 0.016.
		if sent < 900 || math.Abs(lost-row.loss) > 0.08 {
			t.Errorf("%v: of %g messages %g arrived", row.set, sent, arrived)
		}
		least, most := slices.Min(last.took), slices.Max(last.took)
		if least < row.least || most > row.most || row.most > row.least && most-least < (row.most-row.least)*9/10 {
			t.Errorf("%v: messages took %v to %v, want %v to %v", row.set, least, most, row.least, row.most)
		}
	}
}

// The keys are refused where they have no effect or are out of range.
func TestControlKeys_AreRefused(t *testing.T) {
	spec := law.Spec{Name: "granter", Worlds: law.BothWorlds(), Sites: []law.Site{law.Controller}, Params: func() any { return &struct{}{} }}
	all := experiment.NewLaws(experiment.Law{Spec: droptail.Spec(), Built: law.BothWorlds()}, experiment.Law{Spec: spec, Built: law.BothWorlds()})
	without := strings.Replace(controlFile, ", {name: granter}", "", 1)
	for _, row := range []struct{ text, key, says string }{
		{without, "control_delay: 1ms", "network.control_delay: no scheme has a law of a controller"},
		{without, "control_loss: 0.1", "network.control_loss: no scheme has a law of a controller"},
		{controlFile, "control_jitter: 101s", "network.control_jitter: 101s is out of range; at most 100s"},
		{controlFile, "control_loss: 1.5", "network.control_loss"},
	} {
		text := strings.Replace(row.text, "rtt: 400us", "rtt: 400us, "+row.key, 1)
		if _, err := all.Parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v, want %s", row.key, fmt.Sprint(err), row.says)
		}
	}
}
