package switchd

import (
	"strings"
	"testing"
	"time"

	"weir/datapath/attach"
	"weir/datapath/reading"
)

// wellReading is a reading of a switch of two ports without faults.
func wellReading() *snapshot {
	port := func(id uint32, name string) reading.Pinned {
		return reading.Pinned{
			Stats: reading.Stats{Port: name, Flows: 4, GrantBytes: 3000, Seen: 1000, Data: 500, Rewritten: 400},
			ID:    id, Ifindex: int(id), HasDevice: true, Local: true, Queue: attach.RootQueue{Kind: "tbf", SentPackets: 1000},
		}
	}
	dev := func(index int) portDevice {
		return portDevice{known: true, ifindex: index, up: true, carrier: true, txPackets: 1000, shaper: shaper{Kind: "tbf", Rate: 1e9, Buffer: 1e6}, features: map[string]bool{}}
	}
	return &snapshot{law: "FairQ",
		at: time.Unix(1000, 0),
		kernel: &reading.Switch{
			Lease: time.Second, HeartbeatAge: 100 * time.Millisecond, Holder: attach.Holder{PID: 7, Version: "v1", Since: time.Minute},
			Ports: []reading.Pinned{port(1, "a"), port(2, "b")},
		},
		process: process{here: true, pid: 7, state: 'S'},
		devices: devices{"a": dev(1), "b": dev(2)},
		queues:  attach.RootQueues{1: {Kind: "tbf", SentPackets: 1000}, 2: {Kind: "tbf", SentPackets: 1000}},
	}
}

// wellBefore is a reading 200 ms before wellReading: data left by port a, its acknowledgements by port b.
func wellBefore() *snapshot {
	r := wellReading()
	r.at = r.at.Add(-200 * time.Millisecond)
	for i := range r.kernel.Ports {
		k := &r.kernel.Ports[i]
		k.Seen, k.Data, k.Rewritten, k.Queue.SentPackets = 0, 0, 0, 0
	}
	r.queues = attach.RootQueues{1: {Kind: "tbf"}, 2: {Kind: "tbf"}}
	for name, d := range r.devices {
		d.txPackets = 0
		r.devices[name] = d
	}
	return r
}

// edit changes the device of port a.
func (r *snapshot) edit(change func(*portDevice)) {
	d := r.devices["a"]
	change(&d)
	r.devices["a"] = d
}

// One row for each check, and for states that it must not confuse with it: the words found at port a in order, the
// reason of the first, and its remedy.
func TestChecks(t *testing.T) {
	met := map[string]bool{}
	for _, row := range []struct {
		what  string
		spoil func(now, before *snapshot, a *reading.Pinned)
		words string
		state State
		says  string
		do    string
	}{
		{"all is well", func(*snapshot, *snapshot, *reading.Pinned) {}, "", "", "", ""},

		{"detached", func(_, _ *snapshot, a *reading.Pinned) { a.HasDevice = false }, "detached", Off, "detached by somebody else", "attaches it again"},
		{"detached and nobody there", func(now, _ *snapshot, a *reading.Pinned) {
			a.HasDevice, now.process = false, process{}
			now.kernel.HeartbeatAge = time.Minute
		}, "detached released", Off, "detached by somebody else", "start weir switch"},
		{"device gone", func(now, _ *snapshot, a *reading.Pinned) { a.HasDevice = false; delete(now.devices, "a") }, "no-device", Off, "its device is gone", "create it again"},
		{"device made again", func(now, _ *snapshot, a *reading.Pinned) {
			a.HasDevice = false
			now.edit(func(d *portDevice) { d.ifindex = 9 })
		}, "no-device", Off, "ifindex 9", "attaches to it at once"},
		{"device made again without a queue", func(now, _ *snapshot, a *reading.Pinned) {
			a.HasDevice = false
			now.edit(func(d *portDevice) { d.ifindex, d.shaper = 9, shaper{Kind: "noqueue"} })
		}, "no-device", Off, `is "noqueue"`, "tc qdisc replace dev a root tbf"},

		{"ending", func(now, _ *snapshot, _ *reading.Pinned) { now.kernel.Releasing = true }, "ending", Off, "is ending", ""},
		{"killed", func(now, _ *snapshot, _ *reading.Pinned) {
			now.process, now.kernel.HeartbeatAge = process{}, time.Minute
		}, "released", Off, "the last heartbeat was 1m0s ago", "start weir switch again"},
		{"killed this moment", func(now, _ *snapshot, _ *reading.Pinned) {
			now.process, now.kernel.HeartbeatAge = process{}, 800*time.Millisecond
		}, "stale-heartbeat", Degraded, "weir switch has sent no heartbeat for 800ms; windows are released after 1s", "whether it runs"},
		{"in another PID namespace", func(now, _ *snapshot, _ *reading.Pinned) { now.process = process{} }, "", "", "", ""},
		{"stopped", func(now, _ *snapshot, _ *reading.Pinned) {
			now.process.state, now.kernel.HeartbeatAge = 'T', 5*time.Second
		}, "stale-heartbeat", Degraded, "process 7 has sent no heartbeat for 5s: it is stopped, windows are not limited", "kill -CONT 7"},
		{"hangs", func(now, _ *snapshot, _ *reading.Pinned) { now.kernel.HeartbeatAge = 5 * time.Second }, "stale-heartbeat", Degraded, "process 7 has sent no heartbeat for 5s, windows are not limited", "what delays it"},
		{"one heartbeat late", func(now, _ *snapshot, _ *reading.Pinned) { now.kernel.HeartbeatAge = 600 * time.Millisecond }, "", "", "", ""},

		{"taken down", func(now, _ *snapshot, _ *reading.Pinned) { now.edit(func(d *portDevice) { d.up = false }) }, "down", Off, "the port is down (ip link set dev a up)", ""},
		{"no carrier", func(now, _ *snapshot, _ *reading.Pinned) { now.edit(func(d *portDevice) { d.carrier = false }) }, "down", Off, "no carrier", "cable"},
		{"leaving", func(_, _ *snapshot, a *reading.Pinned) { a.Releasing = true }, "leaving", Off, "is leaving this port", ""},

		{"mq", func(_, _ *snapshot, a *reading.Pinned) {
			a.NoQueue, a.Releasing, a.Queue.Kind = &attach.NoQueue{Kind: "mq"}, true, "mq"
		}, "no-queue", Degraded, `"mq", which has no backlog of its own: windows are not limited`, "tc qdisc replace"},
		{"fq_codel", func(now, _ *snapshot, a *reading.Pinned) {
			a.Releasing, a.Queue.Kind = true, "fq_codel"
			now.edit(func(d *portDevice) { d.shaper = shaper{Kind: "fq_codel"} })
		}, "unknown-rate", Degraded, `"fq_codel", which reports no rate`, "its rate and buffer"},
		{"bfifo whose rate was given", func(now, _ *snapshot, a *reading.Pinned) {
			now.edit(func(d *portDevice) { d.shaper = shaper{Kind: "bfifo", Buffer: 1e6} })
		}, "", "", "", ""},

		{"a program in front that lets all pass", func(_, _ *snapshot, a *reading.Pinned) { a.Before = []string{"cil"} }, "not-first", Degraded, "run before FairQ, and may keep packets from it: cil", "weir doctor a"},
		{"a program in front that ends the chain", func(_, before *snapshot, a *reading.Pinned) {
			a.Before, before.kernel.Ports[0].Seen = []string{"cil"}, a.Seen
		}, "not-reached not-first", Degraded, "none of the last 1000 packets of the port; a program that runs before it ends the chain: cil", "behind FairQ"},
		{"one that takes most", func(_, before *snapshot, a *reading.Pinned) {
			a.Before, before.kernel.Ports[0].Seen = []string{"cil"}, a.Seen-300
		}, "not-reached not-first", Degraded, "saw only 300 of the last 1000", "behind FairQ"},
		{"something takes all, and is not in the chain", func(_, before *snapshot, a *reading.Pinned) { before.kernel.Ports[0].Seen = a.Seen },
			"not-reached", Degraded, "none of the last 1000", "nft list ruleset"},
		{"nothing sent", func(now, before *snapshot, a *reading.Pinned) { *before = *now }, "", "", "", ""},
		{"packets that waited are sent now", func(_, before *snapshot, a *reading.Pinned) {
			before.kernel.Ports[0].Seen, before.queues[1] = a.Seen, attach.RootQueue{Kind: "tbf", BacklogPackets: 1000}
		}, "", "", "", ""},
		{"packets came while the first reading went on", func(_, before *snapshot, a *reading.Pinned) {
			before.kernel.Ports[0].Seen, before.queues[1] = a.Seen, attach.RootQueue{Kind: "tbf", SentPackets: 1000}
		}, "", "", "", ""},
		{"packets came while the second reading went on", func(now, _ *snapshot, _ *reading.Pinned) {
			now.queues[1] = attach.RootQueue{Kind: "tbf", SentPackets: 9000}
			now.edit(func(d *portDevice) { d.txPackets = 9000 })
		}, "", "", "", ""},
		{"the queue was replaced meanwhile", func(_, before *snapshot, a *reading.Pinned) {
			before.kernel.Ports[0].Seen, before.kernel.Ports[0].Queue.SentBytes = a.Seen, 5000
		}, "", "", "", ""},

		{"XDP sends past the queue", func(now, _ *snapshot, _ *reading.Pinned) { now.edit(func(d *portDevice) { d.txPackets = 5000 }) }, "bypassed", Degraded, "sent 5000 packets, and 1000 of them", "AF_XDP"},
		{"the device splits nothing", func(now, _ *snapshot, _ *reading.Pinned) { now.edit(func(d *portDevice) { d.txPackets = 100 }) }, "", "", "", ""},
		{"a chip", func(now, _ *snapshot, _ *reading.Pinned) { now.edit(func(d *portDevice) { d.onChip = true }) }, "on-chip", Degraded, "a switch chip forwards", "bridge link"},
		{"chained segments", func(now, _ *snapshot, _ *reading.Pinned) {
			now.edit(func(d *portDevice) { d.features[featureFraglist] = true })
		}, "hidden-segments", Degraded, "rx-gro-list is on", "ethtool -K a rx-gro-list off"},
		{"rules in hardware", func(now, _ *snapshot, _ *reading.Pinned) {
			now.edit(func(d *portDevice) { d.features[featureHardware] = true })
		}, "hw-tc-offload", Enforced, "hw-tc-offload is on", "ethtool -K a hw-tc-offload off"},

		{"data one way only", func(_, before *snapshot, a *reading.Pinned) {
			a.OneSidedData, before.kernel.Ports[0].OneSidedData = 2, 2
		}, "one-sided", Degraded, "the data of 2 flows leaves here", "edge mode"},
		{"data one way only, and nothing counts as a flow", func(_, before *snapshot, a *reading.Pinned) {
			a.OneSidedData, before.kernel.Ports[0].OneSidedData, a.Flows = 1, 3, 0
		}, "one-sided", Degraded, "the data of 1 flows", "configure every port"},
		{"data one way only, now and not before", func(_, _ *snapshot, a *reading.Pinned) { a.OneSidedData, a.Flows = 3, 0 }, "", "", "", ""},
		{"data of one flow of a few one way only", func(_, before *snapshot, a *reading.Pinned) {
			a.OneSidedData, before.kernel.Ports[0].OneSidedData = 1, 1
		}, "", "", "", ""},
		{"data of few flows one way only", func(_, before *snapshot, a *reading.Pinned) {
			a.OneSidedData, before.kernel.Ports[0].OneSidedData, a.Flows = 2, 2, 21
		}, "", "", "", ""},
		{"acknowledgements one way only", func(_, before *snapshot, a *reading.Pinned) {
			a.OneSidedAcks, before.kernel.Ports[0].OneSidedAcks = 2, 2
		}, "data-elsewhere", Enforced, "acknowledgements of 2 flows", "configure every port"},
		{"acknowledgements of few flows one way only", func(now, before *snapshot, a *reading.Pinned) {
			a.OneSidedAcks, before.kernel.Ports[0].OneSidedAcks, now.kernel.Ports[1].Flows = 2, 2, 20
		}, "", "", "", ""},
		{"canary", func(_, _ *snapshot, a *reading.Pinned) {
			a.Mode, a.LimitedBuckets = reading.EnforcePart, reading.Buckets/10
		}, "part", Enforced, "10 % of its flows", ""},
		{"observed", func(_, _ *snapshot, a *reading.Pinned) { a.Mode = reading.EnforceNone }, "observed", Off, "observed only, as configured", ""},
		{"observed, with flows of other ports", func(now, before *snapshot, a *reading.Pinned) {
			a.Mode, a.Rewritten = reading.EnforceNone, before.kernel.Ports[0].Rewritten+2900
		}, "observed", Off, "rewritten for flows of other ports", ""},
		{"rolled back", func(_, _ *snapshot, a *reading.Pinned) {
			a.Mode, a.Note = reading.EnforceNone, "rolled back: goodput 0.7 is below 0.9"
		}, "rolled-back", Off, "goodput 0.7", "tries again"},
		{"tunnels", func(_, _ *snapshot, a *reading.Pinned) { a.Tunnel = 300 }, "tunnels", Degraded, "30 % of its packets", "where the tunnels end"},
		{"a few tunnels", func(_, _ *snapshot, a *reading.Pinned) { a.Tunnel = 90 }, "", "", "", ""},
		{"the parking is gone", func(now, _ *snapshot, a *reading.Pinned) {
			a.Credits.Paces, now.kernel.Parking = true, &reading.Parking{MostPackets: 10, MostBytes: 10}
		}, "no-parking", Degraded, "packets that should wait pass", "makes it again within a second"},
		{"the parking is gone, and nobody there", func(now, _ *snapshot, a *reading.Pinned) {
			a.Credits.Paces, now.kernel.Parking, now.process = true, &reading.Parking{MostPackets: 10, MostBytes: 10, Fault: "odd"}, process{}
		}, "no-parking", Degraded, "pass (odd)", "start weir switch again"},
		{"the parking is full", func(now, _ *snapshot, a *reading.Pinned) {
			a.Credits.Paces, now.kernel.Parking = true, &reading.Parking{Present: true, Packets: 10, MostPackets: 10, MostBytes: 10}
		}, "full-parking", Degraded, "the parking is full", "target_fraction"},
		{"the parking was full since the last reading", func(now, before *snapshot, a *reading.Pinned) {
			a.Credits.Paces = true
			now.kernel.Parking = &reading.Parking{Present: true, MostPackets: 10, MostBytes: 10, PassedFull: 8}
			before.kernel.Parking = &reading.Parking{Present: true, MostPackets: 10, MostBytes: 10, PassedFull: 7}
		}, "full-parking", Degraded, "the parking is full", "target_fraction"},
		{"the parking was full before", func(now, before *snapshot, a *reading.Pinned) {
			a.Credits.Paces = true
			now.kernel.Parking = &reading.Parking{Present: true, MostPackets: 10, MostBytes: 10, PassedFull: 8}
			before.kernel.Parking = now.kernel.Parking
		}, "", "", "", ""},
		{"the parking does not keep the order", func(now, _ *snapshot, a *reading.Pinned) {
			a.Credits.Paces, now.kernel.Parking = true, &reading.Parking{Present: true, Unordered: true, MostPackets: 10, MostBytes: 10}
		}, "unordered", Enforced, "may change places", "/sys"},
		{"another port's parking is gone", func(now, _ *snapshot, _ *reading.Pinned) { now.kernel.Parking = &reading.Parking{} }, "", "", "", ""},
		{"segments are lost although losses are repaired", func(_, before *snapshot, a *reading.Pinned) {
			a.Repairs, before.kernel.Ports[0].Repairs = &reading.Repairs{Full: 9, MostBytes: 1000}, &reading.Repairs{Full: 7}
		}, "unrepaired", Enforced, "2 segments were dropped: 1000 B wait at most", "raise park"},
		{"segments were lost before", func(_, before *snapshot, a *reading.Pinned) {
			a.Repairs, before.kernel.Ports[0].Repairs = &reading.Repairs{Full: 9}, &reading.Repairs{Full: 9}
		}, "", "", "", ""},
		{"the parking of repairs is gone", func(now, _ *snapshot, a *reading.Pinned) {
			a.Repairs, now.kernel.Parking = &reading.Repairs{}, &reading.Parking{MostPackets: 10, MostBytes: 10}
		}, "no-parking", Degraded, "packets that should wait pass", "makes it again within a second"},
		{"the table is full", func(_, _ *snapshot, a *reading.Pinned) { a.TableFull = 12 }, "table-full", Degraded, "12 new connections pass unmanaged", "--scope"},
		{"the table was full", func(_, before *snapshot, a *reading.Pinned) {
			a.TableFull, before.kernel.Ports[0].TableFull = 12, 12
		}, "was-full", Enforced, "12 connections passed unmanaged", "--scope"},
		{"another namespace", func(_, _ *snapshot, a *reading.Pinned) { a.Local = false }, "elsewhere", Enforced, "in another network namespace", "nsenter"},
	} {
		now, before := wellReading(), wellBefore()
		row.spoil(now, before, &now.kernel.Ports[0])
		found := now.view(0, before).findings()
		var words []string
		for _, f := range found {
			words = append(words, f.Word)
			met[f.Word] = true
		}
		if got := strings.Join(words, " "); got != row.words {
			t.Errorf("%s: found %q, not %q: %+v", row.what, got, row.words, found)
			continue
		}
		if len(found) > 0 && (found[0].State != row.state || !strings.Contains(found[0].Reason, row.says) || !strings.Contains(found[0].Remedy, row.do)) {
			t.Errorf("%s: %+v", row.what, found[0])
		}
	}
	for i, c := range checks {
		if i > 0 && less(c.state, checks[i-1].state) {
			t.Errorf("%q leaves less of the law in force than %q before it", c.word, checks[i-1].word)
		}
		if !met[c.word] {
			t.Errorf("no row tests %q", c.word)
		}
		delete(met, c.word) // two checks with one word: the second has no row
	}
}

// Rates need two readings of the same device.
func TestRates(t *testing.T) {
	now, before := wellReading(), wellBefore()
	a := &now.kernel.Ports[0]
	a.Queue.Drops = 7
	now.edit(func(d *portDevice) { d.txDropped = 3 })
	r := now.view(0, before).recent.rates()
	if r == nil || r.IntervalMs != 200 || r.Packets != 5000 || r.Rewritten != 2000 || r.Drops != 50 {
		t.Errorf("%+v", r)
	}
	if r := now.view(0, nil).recent.rates(); r != nil {
		t.Errorf("of one reading: %+v", r)
	}
	a.Ifindex = 9
	if r := now.view(0, before).recent.rates(); r != nil {
		t.Errorf("of a device that was made again: %+v", r)
	}
}
