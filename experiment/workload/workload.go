// Package workload turns the traffic of a run into a schedule: when each flow starts, and its size. It is pure:
// the same Config and seed give the same schedule on every machine, for every scheme and in every world, so that
// schemes are compared under the same traffic.
//
//	workload.go  the schedule's types, Expand
//	patterns.go  bulk, burst, cbr, closed_loop, poisson
//	cdf.go       distributions of flow sizes
//	random.go    sources of randomness
package workload

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"weir/experiment"
	"weir/law"
)

// MaxFlows is the largest number of scheduled flows in one run (56 B each here, and some hundred bytes once they
// are measured).
const MaxFlows = 5_000_000

// DefaultJitter is the limit of the jitter of starts when the Config has no round-trip time.
const DefaultJitter = law.Duration(100_000)

// Workload is the schedule of one run. Nothing in it starts at or after Config.Duration.
type Workload struct {
	Flows []Flow // open loop: each starts at its time, independent of the others; ordered by Start
	Loops []Loop // closed loops: the next request starts when the previous one is complete

	thinks []thinking // by item
}

// Flow is one scheduled flow.
//
// With `connection: persistent` all flows of one Item and Mouse use one connection, one after the other. A flow
// whose connection is still busy at Start waits for it.
type Flow struct {
	Item, Pair int32 // indices into Config.Items and its Pairs
	Mouse      int32 // index of its pair and connection within the group
	Epoch      int32 // number of the burst; with poisson, number of the flow of its pair
	Start      law.Duration
	Wrote      law.Duration // next to the lab: its program writes no sooner than this after Start
	Stop       law.Duration // bulk and cbr end here; 0: at the run's end
	Size       law.Bytes    // 0: endless, until Stop
	Rate       law.Rate     // pace of the sender; 0: as fast as the transport allows
}

// Loop is one closed loop of one pair: Requests requests, shared by the connections. Connection c starts at
// Starts[c], and takes the next request whenever its last one is complete. With `connection: new` each request has
// its own connection.
type Loop struct {
	Item, Pair   int32
	Mouse        int32 // of connection 0; connection c is mouse Mouse+c
	Epoch        int32 // of the loop's first request; request n has Epoch+n
	Starts       []law.Duration
	Stop         law.Duration // no request starts at or after this time
	Requests     int32        // 0: until Stop
	size         law.Bytes
	distribution *Distribution
	key          uint64
}

// Size returns how many bytes request n of the loop transfers.
func (l *Loop) Size(n int) law.Bytes {
	if l.distribution == nil {
		return l.size
	}
	return l.distribution.Quantile(toUnit(mix(l.key + mix(uint64(n)))))
}

// Group returns the group that an item's flows are measured in.
func Group(t *experiment.Traffic) string { return cmp.Or(t.Group, t.Name) }

// thinking is the time that the programs of an item take before they answer; the zero value: none.
type thinking struct {
	least, span, batch law.Duration
	key                uint64
}

// Answers returns when the program that is asked for a flow at a time answers; both are since the start of the run. It is the same
// for every scheme and world.
func (w *Workload) Answers(item, mouse, epoch int32, asked law.Duration) law.Duration {
	if int(item) >= len(w.thinks) {
		return asked
	}
	t := w.thinks[item]
	if t.least+t.span > 0 {
		drawn := toUnit(mix(t.key + mix(uint64(uint32(mouse))<<32|uint64(uint32(epoch)))))
		asked += t.least + law.Duration(float64(drawn*float64(t.span)))
	}
	if t.batch > 0 && asked > 0 {
		asked = (asked + t.batch - 1) / t.batch * t.batch
	}
	return asked
}

// Pulls reports whether the receiving side connects and asks for the data.
func Pulls(t *experiment.Traffic) bool { return t.Data == "pull" }

// Ends returns the side of a pair that connects and the side that accepts.
func Ends(t *experiment.Traffic, p experiment.Pair) (client, server string) {
	if Pulls(t) {
		return p.Dst, p.Src
	}
	return p.Src, p.Dst
}

// UDP reports whether an item's flows are UDP.
func UDP(t *experiment.Traffic) bool { return t.Proto == "udp" }

// Persistent reports whether an item's flows share connections.
func Persistent(t *experiment.Traffic) bool { return t.Connection == "persistent" }

// Expand returns the schedule of a run.
//
// Starts: bulk, cbr and the connections of a closed loop start at `start`, bursts every `every`. Without `gap`,
// each start of an epoch is shifted by its own jitter, uniform in [0, Config.RTT) (DefaultJitter if that is 0).
// With `gap`, the starts follow each other in random order at exponential distances, and one such jitter shifts
// the whole epoch. Poisson arrivals are random in themselves.
//
// Poisson: `load` is the payload's share of the rate of each link through which sources reach the network. Sources
// that share a link share its load; each arrival picks one of their pairs.
//
// Flows that would start at or after Config.Duration or `stop` are left out. An error names the item and what to
// change.
func Expand(cfg *experiment.Config, seed int64) (*Workload, error) {
	if cfg.Duration <= 0 {
		return nil, errors.New("duration is not set: set the experiment's duration")
	}
	e := &expander{cfg: cfg, seed: seed, jitter: cmp.Or(cfg.RTT, DefaultJitter), mice: map[string]int{}}
	for i := range cfg.Items {
		if err := e.item(i); err != nil {
			return nil, fmt.Errorf("traffic %s: %w", cfg.Items[i].Name, err)
		}
		t := &cfg.Items[i].Traffic
		_, key := seedOf(seed, t.Name, "think")
		e.out.thinks = append(e.out.thinks, thinking{t.Think[0], t.Think[1] - t.Think[0], t.Batch, key})
	}
	e.out.order()
	return &e.out, nil
}

func (w *Workload) order() {
	slices.SortFunc(w.Flows, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Item, b.Item),
			cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Mouse, b.Mouse))
	})
}

// StartAt moves the starts and first writes of open-loop flows, and the starts of closed loops' connections, to those in
// starts, by name; times are 0 or later. A connection begins with its first request. Flows and connections that are not
// in starts, or whose new start would be at or after their Stop or Config.Duration, keep their schedule.
func (w *Workload) StartAt(cfg *experiment.Config, starts map[experiment.FlowName]experiment.FlowStart) {
	begins := func(at, stop law.Duration) bool { return at >= 0 && at < cfg.Duration && (stop == 0 || at < stop) }
	for i := range w.Flows {
		f := &w.Flows[i]
		s, ok := starts[experiment.FlowName{Item: cfg.Items[f.Item].Name, Mouse: int(f.Mouse), Epoch: int(f.Epoch)}]
		if ok && begins(s.At, f.Stop) {
			f.Start, f.Wrote = s.At, s.Wrote
		}
	}
	w.order()
	for i := range w.Loops {
		l := &w.Loops[i]
		for c := range l.Starts {
			if at, ok := l.first(c, cfg.Items[l.Item].Name, starts); ok && begins(at, l.Stop) {
				l.Starts[c] = at
			}
		}
	}
}

// first returns when the first request of connection c of the loop began.
func (l *Loop) first(c int, item string, starts map[experiment.FlowName]experiment.FlowStart) (law.Duration, bool) {
	for n := range int(max(l.Requests, 1)) {
		if s, ok := starts[experiment.FlowName{Item: item, Mouse: int(l.Mouse) + c, Epoch: int(l.Epoch) + n}]; ok {
			return s.At, true
		}
	}
	return 0, false
}
