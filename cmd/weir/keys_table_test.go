package main

// keysOfFiles has, for each key of the schema of experiment files, the evidence of its effect.
var keysOfFiles = map[string][]keyCase{
	"id":       {{see: inPlan, set: "id=other"}},
	"ids":      {{see: inReport, set: "ids=[F7, F8]"}},
	"paper":    {{see: inReport, set: "paper=somewhere"}},
	"notes":    {{see: inReport, set: "notes=[look here]"}},
	"worlds":   {{see: inPlan, set: "worlds=[sim]"}},
	"duration": {{set: "duration=250ms"}},
	"seeds":    {{see: inPlan, set: "seeds=[2]"}},

	"topology.kind":            {{set: "topology={kind: leaf_spine, leaves: 2, spines: 2, servers: 2, hypervisors: false}", topology: keysRacks}},
	"topology.switch":          {{see: inPlan, set: "topology.switch=ovs"}, {see: inPlan, set: "topology.switch=rtl"}},
	"topology.senders":         {{set: "topology.senders=2"}},
	"topology.receivers":       {{set: "topology.receivers=1"}},
	"topology.racks":           {{set: "topology.racks=3", topology: keysRacks}},
	"topology.servers":         {{set: "topology.servers=1", topology: keysRacks}},
	"topology.spines":          {{set: "topology.spines=1", topology: keysLeafSpine}},
	"topology.leaves":          {{set: "topology.leaves=3", topology: keysLeafSpine}},
	"topology.cores":           {{set: "topology.cores=1", topology: keysFatTree}},
	"topology.aggs":            {{set: "topology.aggs=1", topology: keysFatTree}},
	"topology.tors":            {{set: "topology.tors=4", topology: keysFatTree}},
	"topology.pods":            {{set: "topology.pods=4", topology: "{kind: fat_tree, pods: 2, hypervisors: false}"}},
	"topology.hops":            {{set: "topology.hops=3", topology: "{kind: chain, hops: 2, senders: 1, receivers: 1, hypervisors: false}"}},
	"topology.hypervisors":     {{set: "topology.hypervisors=true"}},
	"topology.vms":             {{set: "topology.vms=2", with: `topology.hypervisors=true  topology.vms=1`}},
	"topology.hosts":           {{set: "topology.hosts={extra: right}", with: "topology.hosts={extra: left}  traffic.long.to=extra"}},
	"topology.routing":         {{set: "topology.routing=single", topology: keysLeafSpine}},
	"topology.links.*.between": {{set: "topology.links.0.between=[sender2, left]", with: keysLink}},
	"topology.links.*.rate":    {{set: "topology.links.0.rate=20Mbit", with: keysLink}},
	"topology.links.*.delay":   {{set: "topology.links.0.delay=3ms", with: keysLink}},
	"topology.links.*.buffer":  {{set: "topology.links.0.buffer=9KB", with: "topology.links=[{between: [left, right], rate: 10Mbit, buffer: 60KB}]"}},

	"guarantees.*.vms":    {{set: "guarantees.0.vms=sender1.vm2", with: keysGuarantee}},
	"guarantees.*.rate":   {{set: "guarantees.0.rate=30Mbit", with: keysGuarantee}},
	"guarantees.*.weight": {{set: "guarantees.0.weight=9", with: keysGuarantee}},

	"network.rate":   {{set: "network.rate=40Mbit"}},
	"network.rtt":    {{set: "network.rtt=2ms"}},
	"network.delay":  {{set: "network={rate: 50Mbit, buffer: 45KB, delay: 1ms}"}},
	"network.buffer": {{set: "network.buffer=20KB"}},
	// No law of this build runs at a controller in a world. A law that does: sim/laws, TestMessenger; tools/toylaw.
	"network.control_delay":  {{see: isRefused, set: "network.control_delay=5s", says: "network.control_delay: no scheme has a law of a controller"}},
	"network.control_jitter": {{see: isRefused, set: "network.control_jitter=5s", says: "network.control_jitter: no scheme has a law of a controller"}},
	"network.control_loss":   {{see: isRefused, set: "network.control_loss=0.5", says: "network.control_loss: no scheme has a law of a controller"}},

	"guests.stack":          {{see: inPlan, set: "guests.stack=netstack"}, {see: isRefused, set: "guests.stack=netstack", says: "guests.stack"}},
	"guests.to_stack":       {{see: inPlan, set: "guests.to_stack=netstack"}, {see: isRefused, set: "guests.to_stack=netstack", says: "guests.stack netstack"}},
	"guests.cc":             {{set: "guests.cc=cubic"}},
	"guests.ecn":            {{set: "guests.ecn=false", with: keysMarking}},
	"guests.initial_window": {{set: "guests.initial_window=2"}},
	"guests.rto_min":        {{set: "guests.rto_min=10ms", with: "network.buffer=9KB"}},
	"guests.initial_rto":    {{set: "guests.initial_rto=10ms", with: keysLostSYN}},
	"guests.delayed_ack":    {{set: "guests.delayed_ack=false"}},
	"guests.sack":           {{set: "guests.sack=false", with: "network.buffer=9KB"}},

	"traffic.*.name":           {{set: "traffic.long.name=other"}},
	"traffic.*.group":          {{set: "traffic.long.group=mice"}},
	"traffic.*.proto":          {{set: "traffic.slow.proto=udp", with: "traffic=[{name: slow, from: sender1, to: receiver1, pattern: cbr, rate: 1Mbit}]"}},
	"traffic.*.from":           {{set: "traffic.long.from=sender1"}},
	"traffic.*.to":             {{set: "traffic.long.to=receiver1"}},
	"traffic.*.pair":           {{set: "traffic.long.pair=same_index"}},
	"traffic.*.data":           {{set: "traffic.mice.data=push"}},
	"traffic.*.think":          {{set: "traffic.mice.think=[1ms, 2ms]"}},
	"traffic.*.batch":          {{set: "traffic.mice.batch=3ms"}},
	"traffic.*.pattern":        {{set: "traffic.t.pattern=closed_loop", with: "traffic=[{name: t, from: sender1, to: receiver1, pattern: burst, size: 20KB, every: 60ms, stop: 200ms}]"}},
	"traffic.*.size":           {{set: "traffic.mice.size=10KB"}},
	"traffic.*.cdf":            {{set: "traffic.web.cdf=data_mining"}},
	"traffic.*.load":           {{set: "traffic.web.load=0.5"}},
	"traffic.*.count":          {{set: "traffic.long.count=2"}},
	"traffic.*.requests":       {{set: "traffic.loop.requests=2"}},
	"traffic.*.concurrency":    {{set: "traffic.loop.concurrency=4"}},
	"traffic.*.start":          {{set: "traffic.mice.start=30ms"}},
	"traffic.*.stop":           {{set: "traffic.noise.stop=100ms"}},
	"traffic.*.every":          {{set: "traffic.mice.every=50ms"}},
	"traffic.*.epochs":         {{set: "traffic.mice.epochs=2"}},
	"traffic.*.gap":            {{set: "traffic.mice.gap=1ms"}},
	"traffic.*.give_up":        {{set: "traffic.mice.give_up=5ms"}},
	"traffic.*.connection":     {{set: "traffic.mice.connection=persistent"}},
	"traffic.*.deadline":       {{set: "traffic.mice.deadline=10ms"}},
	"traffic.*.rate":           {{set: "traffic.noise.rate=2Mbit"}},
	"traffic.*.stack":          {{see: inPlan, set: "traffic.long.stack=netstack"}, {see: isRefused, set: "traffic.long.stack=netstack", says: "guests.stack"}},
	"traffic.*.to_stack":       {{see: inPlan, set: "traffic.long.to_stack=netstack"}, {see: isRefused, set: "traffic.long.to_stack=netstack", says: "guests.stack netstack"}},
	"traffic.*.cc":             {{set: "traffic.long.cc=cubic"}},
	"traffic.*.ecn":            {{set: "traffic.long.ecn=false", with: keysMarking}},
	"traffic.*.initial_window": {{set: "traffic.mice.initial_window=2"}},
	"traffic.*.rto_min":        {{set: "traffic.mice.rto_min=10ms", with: "network.buffer=9KB"}},
	"traffic.*.initial_rto":    {{set: "traffic.mice.initial_rto=10ms", with: keysLostSYN}},
	"traffic.*.delayed_ack":    {{set: "traffic.long.delayed_ack=false"}},
	"traffic.*.sack":           {{set: "traffic.long.sack=false", with: "network.buffer=9KB"}},

	"schemes.*.name":                  {{see: inPlan, set: "schemes.droptail.name=other", with: "schemes.droptail.laws=[droptail]"}},
	"schemes.*.laws":                  {{set: "schemes.droptail.laws=[fairq]"}},
	"schemes.*.params":                {{set: "schemes.droptail.params={threshold: 30KB}", with: keysMarking}},
	"schemes.*.guests.stack":          {{see: inPlan, set: "schemes.droptail.guests.stack=netstack"}, {see: isRefused, set: "schemes.droptail.guests.stack=netstack", says: "guests.stack"}},
	"schemes.*.guests.to_stack":       {{see: inPlan, set: "schemes.droptail.guests.to_stack=netstack"}, {see: isRefused, set: "schemes.droptail.guests.to_stack=netstack", says: "guests.stack netstack"}},
	"schemes.*.guests.cc":             {{set: "schemes.droptail.guests.cc=cubic"}},
	"schemes.*.guests.ecn":            {{set: "schemes.droptail.guests.ecn=false", with: keysMarking}},
	"schemes.*.guests.initial_window": {{set: "schemes.droptail.guests.initial_window=2"}},
	"schemes.*.guests.rto_min":        {{set: "schemes.droptail.guests.rto_min=10ms", with: "network.buffer=9KB"}},
	"schemes.*.guests.initial_rto":    {{set: "schemes.droptail.guests.initial_rto=10ms", with: keysLostSYN}},
	"schemes.*.guests.delayed_ack":    {{set: "schemes.droptail.guests.delayed_ack=false"}},
	"schemes.*.guests.sack":           {{set: "schemes.droptail.guests.sack=false", with: "network.buffer=9KB"}},
	"schemes.*.at":                    {{set: "schemes.droptail.at=[right]", with: "schemes.droptail.laws=[fairq]"}},
	"schemes.*.worlds":                {{see: inPlan, set: "schemes.droptail.worlds=[sim]"}},

	"vary.*.key":    {{see: inPlan, set: "vary.0.key=guests.initial_window", with: "vary=[{key: topology.senders, values: [2, 4]}]"}},
	"vary.*.as":     {{see: inPlan, set: "vary.0.as=n", with: "vary=[{key: topology.senders, values: [2, 4]}]"}},
	"vary.*.values": {{see: inPlan, set: "vary.0.values=[2]", with: "vary=[{key: topology.senders, values: [2, 4]}]"}},
	"vary.*.cases":  {{see: inPlan, set: "vary.0.cases={a: {guests.cc: reno}, b: {guests.cc: cubic}}", with: "vary=[{as: cc, cases: {a: {guests.cc: reno}}}]"}},

	"lab.time_scale": {{see: inPlan, set: "lab.time_scale=2"}},
	"lab.seeds":      {{see: inPlan, set: "lab.seeds=[5]"}},

	"measure.ports":   {{set: "measure.ports={up: left->right}"}},
	"measure.windows": {{see: inReport, set: "measure.windows={late: [100ms, 200ms]}"}},
	"measure.series":  {{set: "measure.series=20ms"}},

	"claims.*.claim":   {{see: inReport, set: "claims.0.claim=droptail.mice.drops < 0", with: keysClaim}},
	"claims.*.paper":   {{see: inReport, set: "claims.0.paper=none is lost", with: keysClaim}},
	"claims.*.ours":    {{see: inReport, set: "claims.0.ours=none is lost", with: keysClaim}},
	"claims.*.source":  {{see: inReport, set: "claims.0.source=Fig. 3", with: "claims=[{claim: droptail.mice.drops < 1, paper: none is lost}]"}},
	"claims.*.because": {{see: inReport, set: "claims.0.because=the buffer is small", with: "claims=[{claim: droptail.mice.drops < 0}]"}},
	"claims.*.value":   {{see: inReport, set: "claims.0.value=none", with: "claims=[{claim: droptail.mice.drops < 1, paper: none is lost}]"}},
	"claims.*.figure":  {{see: inReport, set: "claims.0.figure=f", with: "figures=[{name: f, bars: [mice.drops]}]  " + keysClaim}},

	"figures.*.name":  {{see: inFigures, set: "figures.0.name=g", with: keysFigure}},
	"figures.*.title": {{see: inFigures, set: "figures.0.title=Lost", with: keysFigure}},
	"figures.*.note":  {{see: inFigures, set: "figures.0.note=few", with: keysFigure}},
	"figures.*.bars":  {{see: inFigures, set: "figures.0.bars=[mice.timeouts]", with: keysFigure}},
	"figures.*.cdf":   {{see: inFigures, set: "figures.0={name: f, cdf: mice.fct_ms}", with: keysFigure}},
	"figures.*.line":  {{see: inFigures, set: "figures.0.line=[long.throughput_mbps]", with: keysLine}},
	"figures.*.over":  {{see: inFigures, set: "figures.0.over=initial_window", with: keysLine + "  vary=[{key: topology.senders, values: [2, 3]}, {key: guests.initial_window, values: [2, 10]}]"}},
	"figures.*.rates": {{see: inFigures, set: "figures.0={name: f, rates: [long]}", with: keysFigure}},
	"figures.*.queue": {{see: inFigures, set: "figures.0={name: f, queue: up}", with: "measure.ports={up: left->right}  " + keysFigure}},
	"figures.*.log":   {{see: inFigures, set: "figures.0.log=true", with: "figures=[{name: f, bars: [mice.fct_ms.p99]}]"}},
}

const (
	keysRacks     = "{kind: racks, racks: 2, servers: 2, hypervisors: false}"
	keysLeafSpine = "{kind: leaf_spine, leaves: 2, spines: 2, servers: 2, hypervisors: false}"
	keysFatTree   = "{kind: fat_tree, cores: 2, aggs: 2, tors: 2, servers: 1, hypervisors: false}"

	keysLink    = "topology.links=[{between: [sender1, left], rate: 30Mbit}]"
	keysMarking = "schemes.droptail.laws=[ecn]  schemes.droptail.params={threshold: 15KB}  guests.ecn=true"
	keysLostSYN = "network.buffer=1pkt"
	keysClaim   = "claims=[{claim: droptail.mice.drops < 1}]"
	keysFigure  = "figures=[{name: f, bars: [mice.drops]}]"
	keysLine    = "vary=[{key: topology.senders, values: [2, 3]}]  figures=[{name: f, line: [mice.drops], over: senders}]"
)
