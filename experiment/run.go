package experiment

import (
	"context"

	"weir/experiment/result"
	"weir/law"
)

// Run is one run to be carried out by one world: one scheme, one seed, one point on every axis.
// Everything in it is resolved: nothing in a world looks at the File again.
type Run struct {
	Experiment string
	World      string
	Seed       int64
	Scale      float64 // time_scale; Config is already scaled by it
	Scheme     string  // label
	Laws       []string
	At         []string          // names of the switches that run the laws
	Params     map[string]any    // typed configuration of each law by its name: map[law]any, scaled
	Point      map[string]string // value of each axis and sweep, by its name
	Config     Config
	// LabRTT: world sim, planned beside the lab: the round trip shall be what the lab measured, where it
	// did. It is not in the name of a run that has nothing of it.
	LabRTT bool `json:",omitempty"`
	// Starts: world sim, beside the lab: when open-loop flows began there. nil: as scheduled, and by hosts and programs that
	// are never late. It is not what was asked, but what a machine made of it.
	Starts map[FlowName]FlowStart `json:"-"`
}

// FlowStart is when an open-loop flow began.
type FlowStart struct {
	At    law.Duration // connect(), or a request's first byte
	Wrote law.Duration // the connecting program's first byte, after At; 0: as soon as it is connected
}

// FlowName tells an open-loop flow from all others of a run.
type FlowName struct {
	Item         string
	Mouse, Epoch int
}

// Config is the network, its guests and the traffic of one run, in the world's own time and rate.
type Config struct {
	Graph    *Graph
	Switch   string   // bridge, ovs, rtl
	Profiles []Guests // distinct settings of guests' TCP; Items refer to them by index; every field said
	Items    []Item
	Duration law.Duration
	RTT      law.Duration      // asked for; the lab cannot set it
	Series   law.Duration      // bin of delivered bytes
	Ports    map[string]string // label -> port name "switch->receiver1" of the Graph
	Windows  map[string][2]law.Duration
}

// Item is one traffic item with its endpoints resolved.
type Item struct {
	Traffic        // scaled; Guests resolved and held in Profiles[Profile]
	Profile int    // index into Config.Profiles
	Pairs   []Pair // data flows Src -> Dst
}

// Pair is where data comes from and where it goes, by node name.
type Pair struct{ Src, Dst string }

// World carries out runs.
type World interface {
	Name() string
	// Check says before anything starts why this run cannot be done here, or nil. The error ends
	// at the user: it names what is missing and what to do.
	Check(r *Run) error
	// Run carries out r. A cancelled context ends the run early: the result is then partial.
	Run(ctx context.Context, r *Run, p Progress) (*result.Raw, error)
}

// Progress is told how a run gets on; it is called from one goroutine at a time.
type Progress interface {
	// Phase says what is being done now: "building 17 nodes", "running".
	Phase(text string)
	// At tells how far the traffic is, in the world's time, and how many flows have ended.
	At(now, total law.Duration, flowsDone int)
}

// Silent is a Progress that says nothing.
type Silent struct{}

// Phase does nothing.
func (Silent) Phase(string) {}

// At does nothing.
func (Silent) At(_, _ law.Duration, _ int) {}
