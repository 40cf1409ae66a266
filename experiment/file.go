// Package experiment is the experiment file: what it may say, how it is checked, and how it
// becomes the list of runs that a world (lab, simulator) carries out.
//
//	file.go      the keys of the file (this is the contract with its users)
//	load.go      strict reading: schema first, then meaning; every error has file, line and key
//	set.go       --set and --sweep paths
//	plan.go      schemes x axes x seeds x worlds -> []Run, each with a resolved Config
//	topology.go  kinds of topology -> Graph of nodes and links
//	endpoint.go  "sender2..4", "rack1.server*" -> node names
package experiment

import "weir/law"

// File is one experiment as written by its author.
type File struct {
	ID       string       `yaml:"id" json:"id"`
	IDs      []string     `yaml:"ids" json:"ids,omitempty"` // experiments of the papers that share this file
	Paper    string       `yaml:"paper" json:"paper,omitempty"`
	Notes    []string     `yaml:"notes" json:"notes,omitempty"`
	Worlds   []string     `yaml:"worlds" json:"worlds"` // lab, sim
	Duration law.Duration `yaml:"duration" json:"duration"`
	Seeds    []int64      `yaml:"seeds" json:"seeds"`
	Topology Topology     `yaml:"topology" json:"topology"`
	Network  Network      `yaml:"network" json:"network"`
	Guests   Guests       `yaml:"guests" json:"guests"`
	Traffic  []Traffic    `yaml:"traffic" json:"traffic"`
	Schemes  []Scheme     `yaml:"schemes" json:"schemes"`
	Vary     []Axis       `yaml:"vary" json:"vary,omitempty"`
	Lab      Lab          `yaml:"lab" json:"lab,omitzero"`
	Measure  Measure      `yaml:"measure" json:"measure"`
	Claims   []string     `yaml:"claims" json:"claims,omitempty"`
}

// Topology says which nodes there are and how they are joined.
type Topology struct {
	Kind        string            `yaml:"kind" json:"kind"`     // dumbbell, racks, leaf_spine, fat_tree, chain
	Switch      string            `yaml:"switch" json:"switch"` // bridge (default), ovs, rtl
	Senders     int               `yaml:"senders" json:"senders,omitempty"`
	Receivers   int               `yaml:"receivers" json:"receivers,omitempty"`
	Racks       int               `yaml:"racks" json:"racks,omitempty"`
	Servers     int               `yaml:"servers" json:"servers,omitempty"` // a rack (or ToR)
	Spines      int               `yaml:"spines" json:"spines,omitempty"`
	Leaves      int               `yaml:"leaves" json:"leaves,omitempty"`
	Cores       int               `yaml:"cores" json:"cores,omitempty"`
	Aggs        int               `yaml:"aggs" json:"aggs,omitempty"`
	ToRs        int               `yaml:"tors" json:"tors,omitempty"`
	Hops        int               `yaml:"hops" json:"hops,omitempty"` // bottlenecks of a chain
	Hypervisors bool              `yaml:"hypervisors" json:"hypervisors"`
	VMs         int               `yaml:"vms" json:"vms,omitempty"` // guests a server; 0: the server itself is the guest
	Hosts       map[string]string `yaml:"hosts" json:"hosts,omitempty"`
	Routing     string            `yaml:"routing" json:"routing,omitempty"` // ecmp, single
	Links       []LinkRule        `yaml:"links" json:"links,omitempty"`
}

// LinkRule overrides the properties of the links between two sets of nodes.
type LinkRule struct {
	Between []string     `yaml:"between" json:"between"`
	Rate    law.Rate     `yaml:"rate" json:"rate,omitempty"`
	Delay   law.Duration `yaml:"delay" json:"delay,omitempty"`
	Buffer  law.Limit    `yaml:"buffer" json:"buffer,omitzero"`
}

// Network gives every link its rate, delay and the buffer of its ports.
type Network struct {
	Rate         law.Rate     `yaml:"rate" json:"rate"`
	RTT          law.Duration `yaml:"rtt" json:"rtt,omitempty"`     // base round trip across the longest path
	Delay        law.Duration `yaml:"delay" json:"delay,omitempty"` // one way, each link; stands for rtt
	Buffer       law.Limit    `yaml:"buffer" json:"buffer"`
	ControlDelay law.Duration `yaml:"control_delay" json:"control_delay,omitempty"`
}

// Guests is how the tenants' TCP is set. A nil pointer or empty string was not said.
type Guests struct {
	Stack         string        `yaml:"stack" json:"stack,omitempty"` // linux, netstack
	CC            string        `yaml:"cc" json:"cc,omitempty"`
	ECN           *bool         `yaml:"ecn" json:"ecn,omitempty"`
	InitialWindow *int          `yaml:"initial_window" json:"initial_window,omitempty"` // segments
	RTOMin        *law.Duration `yaml:"rto_min" json:"rto_min,omitempty"`
	InitialRTO    *law.Duration `yaml:"initial_rto" json:"initial_rto,omitempty"`
	DelayedACK    *bool         `yaml:"delayed_ack" json:"delayed_ack,omitempty"`
	SACK          *bool         `yaml:"sack" json:"sack,omitempty"`
}

// Traffic is one group of flows of the same kind.
type Traffic struct {
	Name        string       `yaml:"name" json:"name"`
	Group       string       `yaml:"group" json:"group,omitempty"` // measured together; default the name
	Proto       string       `yaml:"proto" json:"proto,omitempty"` // tcp (default), udp
	From        string       `yaml:"from" json:"from"`
	To          string       `yaml:"to" json:"to"`
	Pair        string       `yaml:"pair" json:"pair,omitempty"` // all (default), same_index, other_index
	Data        string       `yaml:"data" json:"data,omitempty"` // push (default), pull
	Pattern     string       `yaml:"pattern" json:"pattern"`     // bulk, cbr, burst, closed_loop, poisson
	Size        law.Bytes    `yaml:"size" json:"size,omitempty"`
	CDF         string       `yaml:"cdf" json:"cdf,omitempty"`   // web_search, data_mining, hadoop, storage
	Load        float64      `yaml:"load" json:"load,omitempty"` // of the from side's links, with poisson
	Count       int          `yaml:"count" json:"count,omitempty"`
	Requests    int          `yaml:"requests" json:"requests,omitempty"`
	Concurrency int          `yaml:"concurrency" json:"concurrency,omitempty"`
	Start       law.Duration `yaml:"start" json:"start"`
	Stop        law.Duration `yaml:"stop" json:"stop,omitempty"`
	Every       law.Duration `yaml:"every" json:"every,omitempty"`
	Epochs      int          `yaml:"epochs" json:"epochs,omitempty"`
	Gap         law.Duration `yaml:"gap" json:"gap,omitempty"` // mean of the exponential gap between starts
	GiveUp      law.Duration `yaml:"give_up" json:"give_up,omitempty"`
	Connection  string       `yaml:"connection" json:"connection,omitempty"` // new (default), persistent
	Deadline    law.Duration `yaml:"deadline" json:"deadline,omitempty"`
	Rate        law.Rate     `yaml:"rate" json:"rate,omitempty"`
	Guests      `yaml:",inline"`
}

// Scheme is one column of the comparison: which laws run, with what, on which guests.
type Scheme struct {
	Name   string         `yaml:"name" json:"name"`
	Laws   []string       `yaml:"laws" json:"laws,omitempty"` // default: [name]
	Params map[string]any `yaml:"params" json:"params,omitempty"`
	Guests Guests         `yaml:"guests" json:"guests,omitzero"`
	At     []string       `yaml:"at" json:"at,omitempty"` // switches that run it; default all
	Worlds []string       `yaml:"worlds" json:"worlds,omitempty"`
}

// Axis is one dimension that the runs are multiplied by: values of one key, or named cases.
type Axis struct {
	Key    string                    `yaml:"key" json:"key,omitempty"`
	As     string                    `yaml:"as" json:"as,omitempty"`
	Values []any                     `yaml:"values" json:"values,omitempty"`
	Cases  map[string]map[string]any `yaml:"cases" json:"cases,omitempty"`
}

// Lab is what differs when the experiment runs on real Linux instead of the simulator.
type Lab struct {
	TimeScale float64 `yaml:"time_scale" json:"time_scale,omitempty"`
	Seeds     []int64 `yaml:"seeds" json:"seeds,omitempty"`
}

// Measure names what is looked at.
type Measure struct {
	Ports   map[string]string          `yaml:"ports" json:"ports,omitempty"`     // label -> "switch->receiver1"
	Windows map[string][2]law.Duration `yaml:"windows" json:"windows,omitempty"` // label -> [from, to]
	Series  law.Duration               `yaml:"series" json:"series,omitempty"`   // step of series_mbps, 10 ms
}
