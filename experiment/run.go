package experiment

import (
	"context"

	"weir/experiment/result"
	"weir/law"
)

// Run is one run in one world: one scheme, one seed, one point on every axis. Everything in it is resolved: worlds
// do not read the File.
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
	// LabRTT, in world sim next to the lab: use the round trip that the lab measured, if it did. It is omitted
	// from the key of a stored run when false.
	LabRTT bool `json:",omitempty"`
	// Starts, in world sim next to the lab: when open-loop flows began in the lab. nil: as scheduled, without
	// delays of hosts and programs. It is not part of what was asked for but a measurement of a machine.
	Starts map[FlowName]FlowStart `json:"-"`
	// Tap, in world sim, returns a law of a controller that does what l does, and has it recorded. nil: nothing is recorded.
	Tap func(l law.Law, name string) law.Law `json:"-"`
}

// FlowStart is when an open-loop flow began.
type FlowStart struct {
	At    law.Duration // connect(), or a request's first byte
	Wrote law.Duration // the connecting program's first byte, relative to At; 0: as soon as it is connected
}

// FlowName identifies an open-loop flow of a run.
type FlowName struct {
	Item         string
	Mouse, Epoch int
}

// Config is the network, guests and traffic of one run, in the world's own time and rate (scaled).
type Config struct {
	Graph      *Graph
	Switch     string   // bridge, ovs, rtl
	Profiles   []Guests // distinct settings of guests' TCP; Items refer to them by index; every field is set
	Items      []Item
	Duration   law.Duration
	RTT        law.Duration      // as in the file; the lab cannot set it
	Control    *Control          `json:",omitempty"` // nil: the file says nothing, or the scheme has no law of a controller
	Guarantees []VMGuarantee     `json:",omitempty"` // of VMs whose law shares uplinks
	Series     law.Duration      // bin width of delivered bytes
	Ports      map[string]string // label -> the PortName of a port of the Graph, "switch->receiver1"
	Windows    map[string][2]law.Duration
}

// Control is how messages between a law of a controller and the nodes travel. Only the simulator can set it.
type Control struct {
	Delay  law.Duration // of each message
	Jitter law.Duration // additional delay, uniform from 0 up to this
	Loss   float64      // probability that a message is lost, 0 to 1
}

// Item is one traffic item with its endpoints resolved.
type Item struct {
	Traffic        // scaled; its Guests are resolved, in Profiles[Profile]
	Profile int    // index into Config.Profiles
	Pairs   []Pair // data flows Src -> Dst
}

// Pair is the node that sends the data and the node that receives it.
type Pair struct{ Src, Dst string }

// World carries out runs.
type World interface {
	Name() string
	// Check returns why this world cannot carry out the run, or nil, before anything starts. The user sees the
	// error: it names what is missing and what to do.
	Check(r *Run) error
	// Run carries out r. A cancelled context ends the run early; the result is then partial.
	Run(ctx context.Context, r *Run, p Progress) (*result.Raw, error)
}

// Progress receives the progress of a run. It is called from one goroutine at a time.
type Progress interface {
	// Phase reports what the run does now: "building 17 nodes", "running".
	Phase(text string)
	// At reports the time in the run, in the world's time, and how many flows have ended.
	At(now, total law.Duration, flowsDone int)
}

// Silent is a Progress that ignores all reports.
type Silent struct{}

// Phase does nothing.
func (Silent) Phase(string) {}

// At does nothing.
func (Silent) At(_, _ law.Duration, _ int) {}
