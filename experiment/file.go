// Package experiment reads and checks the experiment file, and plans the runs that a world (lab, simulator)
// carries out.
//
//	file.go      the keys of the file (the contract with users)
//	schema.go    the JSON schema, made from those keys
//	load.go      strict reading with package config: schema first, then meaning
//	check.go     what a schema cannot express
//	laws.go      the configuration fields of every law
//	set.go       --set and --sweep paths
//	plan.go      schemes x axes x seeds x worlds -> []Run, each with a resolved Config
//	topology.go  kinds of topology -> Graph of nodes and links
//	endpoint.go  "sender2..4", "rack1.server*" -> node names
package experiment

import (
	"weir/config"
	"weir/experiment/claim"
	"weir/law"
)

// File is an experiment file with the defaults filled in.
type File struct {
	ID         string            `json:"id" jsonschema:"pattern=^[A-Za-z][A-Za-z0-9_-]*$" jsonschema_description:"a name: letters, digits, _ and -; results are stored under it"`
	IDs        []string          `json:"ids,omitempty" jsonschema:"minItems=1,maxItems=20,pattern=^[A-Za-z][A-Za-z0-9_-]*$" jsonschema_description:"the experiments of the papers that share this file"`
	Paper      string            `json:"paper,omitempty" jsonschema_description:"where the experiment comes from"`
	Notes      []string          `json:"notes,omitempty" jsonschema_description:"what a reader of the results must know"`
	Worlds     []string          `json:"worlds" jsonschema:"minItems=1,uniqueItems=true,enum=lab,enum=sim" jsonschema_description:"where it can run (default: lab and sim)"`
	Duration   law.Duration      `json:"duration" jsonschema:"required" jsonschema_description:"the run ends when every flow has, at latest then"`
	Seeds      []int64           `json:"seeds" jsonschema:"minItems=1,maxItems=1000,uniqueItems=true,minimum=0" jsonschema_description:"one run for each (default: [1])"`
	Topology   Topology          `json:"topology" jsonschema:"required" jsonschema_description:"the nodes and the links between them"`
	Network    Network           `json:"network" jsonschema:"required" jsonschema_description:"rate, delay and buffer of every link"`
	Guests     Guests            `json:"guests" jsonschema_description:"how the tenants' TCP is set"`
	Guarantees []Guarantee       `json:"guarantees,omitempty" jsonschema:"maxItems=50" jsonschema_description:"what VMs get of their hosts' uplinks under a scheme whose law shares uplinks, as a policy does (weir policy)"`
	Traffic    []Traffic         `json:"traffic" jsonschema:"required,minItems=1,maxItems=200" jsonschema_description:"the flows"`
	Schemes    []Scheme          `json:"schemes" jsonschema:"required,minItems=1,maxItems=50" jsonschema_description:"the columns of the comparison"`
	Vary       []Axis            `json:"vary,omitempty" jsonschema:"maxItems=6" jsonschema_description:"axes; the runs are all combinations of their values, in order"`
	Lab        Lab               `json:"lab,omitzero" jsonschema_description:"what differs on real Linux"`
	Measure    Measure           `json:"measure" jsonschema_description:"what is measured, beyond groups and flows"`
	Claims     []claim.Statement `json:"claims,omitempty" jsonschema:"maxItems=200" jsonschema_description:"LEFT op RIGHT over the results, decided on the median over seeds"`
	Figures    []Figure          `json:"figures,omitempty" jsonschema:"maxItems=50" jsonschema_description:"figures of the report, in addition to those drawn for every experiment"`

	name string       // of the file, for errors
	tree *config.Tree // the tree it was decoded from, for --set and vary
	laws *Laws        // of the build that read it
}

// Guarantee is what VMs get of their host's uplink.
type Guarantee struct {
	VMs    string   `json:"vms" jsonschema:"required" jsonschema_description:"endpoint pattern of the VMs"`
	Rate   law.Rate `json:"rate,omitempty" jsonschema_description:"least rate of each"`
	Weight uint32   `json:"weight,omitempty" jsonschema:"minimum=1,maximum=1000" jsonschema_description:"VMs share the uplink by weight, and none has less than its rate (default: 1)"`
}

// Topology describes the nodes and the links between them.
type Topology struct {
	Kind        string            `json:"kind" jsonschema:"required,enum=dumbbell,enum=racks,enum=leaf_spine,enum=fat_tree,enum=chain" jsonschema_description:"the kind of network"`
	Switch      string            `json:"switch" jsonschema:"enum=bridge,enum=ovs,enum=rtl" jsonschema_description:"the lab's switches (default: bridge); rtl needs a program (make rtl-switch); the simulator has one kind of switch"`
	Senders     int               `json:"senders,omitempty" jsonschema:"minimum=1,maximum=1000" jsonschema_description:"dumbbell: senders; chain: senders a switch"`
	Receivers   int               `json:"receivers,omitempty" jsonschema:"minimum=1,maximum=1000" jsonschema_description:"dumbbell: receivers; several of them are behind a second switch; chain: receivers a switch"`
	Racks       int               `json:"racks,omitempty" jsonschema:"minimum=1,maximum=1000" jsonschema_description:"racks: number of racks"`
	Servers     int               `json:"servers,omitempty" jsonschema:"minimum=1,maximum=250" jsonschema_description:"servers a rack"`
	Spines      int               `json:"spines,omitempty" jsonschema:"minimum=1,maximum=32" jsonschema_description:"leaf_spine: spine switches"`
	Leaves      int               `json:"leaves,omitempty" jsonschema:"minimum=1,maximum=100" jsonschema_description:"leaf_spine: leaf switches, one a rack"`
	Cores       int               `json:"cores,omitempty" jsonschema:"minimum=1,maximum=32" jsonschema_description:"fat_tree: core switches"`
	Aggs        int               `json:"aggs,omitempty" jsonschema:"minimum=1,maximum=32" jsonschema_description:"fat_tree: aggregation switches"`
	ToRs        int               `json:"tors,omitempty" jsonschema:"minimum=1,maximum=100" jsonschema_description:"fat_tree: top-of-rack switches, one a rack"`
	Pods        int               `json:"pods,omitempty" jsonschema:"minimum=2,maximum=32" jsonschema_description:"fat_tree, instead of cores, aggs, tors and servers: pods of a k-ary fat tree (k, even), k^3/4 servers in all"`
	Hops        int               `json:"hops,omitempty" jsonschema:"minimum=1,maximum=20" jsonschema_description:"chain: links between switches, each a bottleneck"`
	Hypervisors bool              `json:"hypervisors" jsonschema_description:"whether a hypervisor is between guest and network (default: true)"`
	VMs         int               `json:"vms,omitempty" jsonschema:"minimum=0,maximum=64" jsonschema_description:"guests a server; 0: the server itself is the guest"`
	Hosts       map[string]string `json:"hosts,omitempty" jsonschema_description:"extra hosts: name: the switch it is connected to"`
	Routing     string            `json:"routing,omitempty" jsonschema:"enum=ecmp,enum=single" jsonschema_description:"if there are equal paths: use all of them (default), or a tree"`
	Links       []LinkRule        `json:"links,omitempty" jsonschema:"maxItems=100" jsonschema_description:"links with other values than network"`
}

// LinkRule overrides the properties of the links between two sets of nodes.
type LinkRule struct {
	Between []string     `json:"between" jsonschema:"required,minItems=2,maxItems=2" jsonschema_description:"two patterns of node names"`
	Rate    law.Rate     `json:"rate,omitempty" jsonschema_description:"both directions"`
	Delay   law.Duration `json:"delay,omitempty" jsonschema_description:"one way"`
	Buffer  law.Limit    `json:"buffer,omitzero" jsonschema_description:"of the switches' ports at this link"`
}

// Network gives every link its rate, delay and the buffer of its ports.
type Network struct {
	Rate   law.Rate     `json:"rate" jsonschema:"required" jsonschema_description:"of every link"`
	RTT    law.Duration `json:"rtt,omitempty" jsonschema_description:"base round trip across the longest path"`
	Delay  law.Duration `json:"delay,omitempty" jsonschema_description:"one way, each link; instead of rtt"`
	Buffer law.Limit    `json:"buffer" jsonschema:"required" jsonschema_description:"of every switch port"`

	ControlDelay  *law.Duration `json:"control_delay,omitempty" jsonschema_description:"simulator: one way, of each message between a controller law and a node (default: rtt/2)"`
	ControlJitter law.Duration  `json:"control_jitter,omitempty" jsonschema_description:"simulator: additional delay of each such message, random from 0s up to this; messages between two nodes keep their order (default: 0s)"`
	ControlLoss   float64       `json:"control_loss,omitempty" jsonschema:"minimum=0,maximum=1" jsonschema_description:"simulator: probability that such a message is lost, 0 to 1 (default: 0)"`
}

// Guests is the TCP configuration of the tenants' machines. A nil pointer or empty string means: not set.
type Guests struct {
	Stack         string        `json:"stack,omitempty" jsonschema:"enum=linux,enum=netstack" jsonschema_description:"the TCP implementation (default: linux)"`
	ToStack       string        `json:"to_stack,omitempty" jsonschema:"enum=linux,enum=netstack" jsonschema_description:"the TCP implementation of the receiving side (default: as stack)"`
	CC            string        `json:"cc,omitempty" jsonschema:"enum=cubic,enum=reno,enum=bbr,enum=dctcp,enum=d2tcp,enum=newreno,enum=sack" jsonschema_description:"congestion control (default: cubic); dctcp and d2tcp imply ecn; newreno (RFC 6582, no SACK) and sack (RFC 6675) exist in the simulator only: recovery by the RFC alone, without Linux's additions"`
	ECN           *bool         `json:"ecn,omitempty" jsonschema_description:"whether ECN is negotiated (default: false)"`
	InitialWindow *int          `json:"initial_window,omitempty" jsonschema:"minimum=1,maximum=1000" jsonschema_description:"segments (default: 10)"`
	RTOMin        *law.Duration `json:"rto_min,omitempty" jsonschema_description:"minimum retransmission timeout (default: 200ms)"`
	InitialRTO    *law.Duration `json:"initial_rto,omitempty" jsonschema_description:"timeout of the first SYN (default: 1s)"`
	DelayedACK    *bool         `json:"delayed_ack,omitempty" jsonschema_description:"default: true"`
	SACK          *bool         `json:"sack,omitempty" jsonschema_description:"default: true"`
}

// Traffic is a set of flows of the same kind.
type Traffic struct {
	Name        string       `json:"name" jsonschema:"required,pattern=^[a-z][a-z0-9_]*$" jsonschema_description:"a name: a-z, then a-z, 0-9 and _"`
	Group       string       `json:"group,omitempty" jsonschema:"pattern=^[a-z][a-z0-9_]*$" jsonschema_description:"items with the same group are measured together: a-z, then a-z, 0-9 and _ (default: the name)"`
	Proto       string       `json:"proto,omitempty" jsonschema:"enum=tcp,enum=udp" jsonschema_description:"default: tcp"`
	From        string       `json:"from" jsonschema:"required" jsonschema_description:"the nodes that send the data: sender*, sender2..4, rack1.server*"`
	To          string       `json:"to" jsonschema:"required" jsonschema_description:"the nodes that receive the data"`
	Pair        string       `json:"pair,omitempty" jsonschema:"enum=all,enum=same_index,enum=other_index" jsonschema_description:"how nodes of from are paired with nodes of to (default: all)"`
	Data        string       `json:"data,omitempty" jsonschema:"enum=push,enum=pull" jsonschema_description:"who connects: from (push, default) or to, which asks for the data (pull)"`
	Pattern     string       `json:"pattern" jsonschema:"required,enum=bulk,enum=cbr,enum=burst,enum=closed_loop,enum=poisson" jsonschema_description:"when flows start"`
	Size        law.Bytes    `json:"size,omitempty" jsonschema_description:"payload of a flow, or of one answer"`
	CDF         string       `json:"cdf,omitempty" jsonschema:"enum=web_search,enum=data_mining,enum=hadoop,enum=storage" jsonschema_description:"the distribution of sizes"`
	Load        float64      `json:"load,omitempty" jsonschema:"exclusiveMinimum=0,maximum=2" jsonschema_description:"poisson: share of the from side's links, above 0 and at most 2"`
	Count       int          `json:"count,omitempty" jsonschema:"minimum=1,maximum=1000" jsonschema_description:"flows a pair (default: 1)"`
	Requests    int          `json:"requests,omitempty" jsonschema:"minimum=1,maximum=1000000" jsonschema_description:"closed_loop: total a pair, shared by its connections, in each epoch"`
	Concurrency int          `json:"concurrency,omitempty" jsonschema:"minimum=1,maximum=1000" jsonschema_description:"closed_loop: connections a pair (default: 1)"`
	Start       law.Duration `json:"start" jsonschema_description:"default: 0s"`
	Stop        law.Duration `json:"stop,omitempty" jsonschema_description:"the time after which nothing more is sent"`
	Every       law.Duration `json:"every,omitempty" jsonschema_description:"from one epoch to the next"`
	Epochs      int          `json:"epochs,omitempty" jsonschema:"minimum=1,maximum=100000" jsonschema_description:"number of epochs (default: 1; with every: as many as fit)"`
	Gap         law.Duration `json:"gap,omitempty" jsonschema_description:"mean of the exponential gap between successive starts, in seeded random order"`
	GiveUp      law.Duration `json:"give_up,omitempty" jsonschema_description:"a flow that lasts longer than this is aborted and counts as unfinished"`
	Connection  string       `json:"connection,omitempty" jsonschema:"enum=new,enum=persistent" jsonschema_description:"a connection for each request (default), or one for all"`
	Deadline    law.Duration `json:"deadline,omitempty" jsonschema_description:"from a flow's start"`
	Rate        law.Rate     `json:"rate,omitempty" jsonschema_description:"cbr: bit rate; tcp: of the payload; udp: of the packets, with IPv4 and UDP headers"`
	// Think is how long the answering program of a pull takes before it answers: uniform from the first to the second value.
	Think [2]law.Duration `json:"think,omitzero" jsonschema_description:"pull: [least, most]: the asked program answers after a time that is uniform between both, drawn for each request (default: at once)"`
	// Batch is the distance of the times at which the answering programs of a pull run.
	Batch law.Duration `json:"batch,omitempty" jsonschema_description:"pull: asked programs run at multiples of this time only, all together, as on a busy machine: what was asked since then is answered at once (default: no such wait)"`
	Guests
}

// Scheme is one column of the comparison: the laws, their parameters and the guests' settings.
type Scheme struct {
	Name   string         `json:"name" jsonschema:"required,pattern=^[a-z][a-z0-9_]*$" jsonschema_description:"the label: a-z, then a-z, 0-9 and _"`
	Laws   []string       `json:"laws,omitempty" jsonschema:"minItems=1,maxItems=4,uniqueItems=true" jsonschema_description:"default: the name"`
	Params map[string]any `json:"params,omitempty" jsonschema_description:"the laws' configuration fields"`
	Guests Guests         `json:"guests,omitzero" jsonschema_description:"TCP settings under this scheme"`
	At     []string       `json:"at,omitempty" jsonschema:"minItems=1,maxItems=100" jsonschema_description:"the switches that run it (default: all)"`
	Worlds []string       `json:"worlds,omitempty" jsonschema:"minItems=1,uniqueItems=true,enum=lab,enum=sim" jsonschema_description:"default: those of the file"`
}

// Axis is one dimension of the runs: values of one key, or named cases.
type Axis struct {
	Key    string                    `json:"key,omitempty" jsonschema_description:"a --set path"`
	As     string                    `json:"as,omitempty" jsonschema:"pattern=^[a-z][a-z0-9_]*$" jsonschema_description:"the axis's name: a-z, then a-z, 0-9 and _ (default: the last part of key)"`
	Values []any                     `json:"values,omitempty" jsonschema:"minItems=1,maxItems=100" jsonschema_description:"what the key is set to"`
	Cases  map[string]map[string]any `json:"cases,omitempty" jsonschema_description:"name of a case: {path: value, ...}"`
	order  []string                  // names of the cases as written
}

// Lab has the settings that differ when the experiment runs on real Linux instead of the simulator.
type Lab struct {
	TimeScale float64 `json:"time_scale,omitempty" jsonschema:"minimum=1,maximum=1000" jsonschema_description:"rates are divided and times multiplied by it, 1 to 1000 (default: 1)"`
	Seeds     []int64 `json:"seeds,omitempty" jsonschema:"minItems=1,maxItems=1000,uniqueItems=true,minimum=0" jsonschema_description:"used instead of seeds"`
}

// Figure is one figure as a paper draws it: metrics as bars or over an axis, a distribution, or rates or a queue
// over time.
type Figure struct {
	Name  string   `json:"name" jsonschema:"required,pattern=^[a-z][a-z0-9_]*$" jsonschema_description:"the name of its files: a-z, then a-z, 0-9 and _"`
	Title string   `json:"title,omitempty" jsonschema_description:"the text above it (default: the name)"`
	Note  string   `json:"note,omitempty" jsonschema_description:"the text below it"`
	Bars  []string `json:"bars,omitempty" jsonschema:"minItems=1,maxItems=8" jsonschema_description:"metrics of one unit: [WINDOW.]GROUP-OR-PORT.METRIC"`
	CDF   string   `json:"cdf,omitempty" jsonschema_description:"a distribution: [WINDOW.]GROUP-OR-PORT.DISTRIBUTION"`
	Line  []string `json:"line,omitempty" jsonschema:"minItems=1,maxItems=8" jsonschema_description:"metrics of one unit, over the axis that over names"`
	Over  string   `json:"over,omitempty" jsonschema_description:"the axis of line; its values must be numbers"`
	Rates []string `json:"rates,omitempty" jsonschema:"minItems=1,maxItems=8" jsonschema_description:"groups: their rates over time, one picture for each scheme"`
	Queue string   `json:"queue,omitempty" jsonschema_description:"a port: its queue over time"`
	Log   bool     `json:"log,omitempty" jsonschema_description:"bars and line: a logarithmic scale"`
}

// Measure lists what is measured, beyond groups and flows.
type Measure struct {
	Ports   map[string]string          `json:"ports,omitempty" jsonschema_description:"label: \"switch->receiver1\""`
	Windows map[string][2]law.Duration `json:"windows,omitempty" jsonschema_description:"label: [from, to]"`
	Series  law.Duration               `json:"series,omitempty" jsonschema_description:"step of series_mbps (default: 10ms)"`
}
