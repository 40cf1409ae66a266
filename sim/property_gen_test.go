package sim

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/law"
	"weir/sim/event"
)

// draft is a random experiment: small, and of every kind.
type draft struct {
	seed   int64
	text   string
	window event.Time // within which its traffic begins
	pods   bool       // its topology is a fat tree of pods
}

const (
	// longEnough is the longest duration of a run: flows that wait for timeouts of seconds have ended then.
	longEnough = law.Duration(3600e9)
	// budget is the largest number of full packets that the sized flows of one item send.
	budget    = 2000
	fullBytes = 1460
)

// drawer draws one experiment. It uses integers only, so that a seed means the same on every machine.
type drawer struct {
	*rand.Rand
	kinds  *rand.Rand // for features that were added later, so that older draws of a seed do not change
	file   experiment.File
	graph  *experiment.Graph
	window law.Duration
}

// drawExperiment returns the experiment of a seed.
func drawExperiment(seed int64) draft {
	d := &drawer{Rand: event.NewRandom(seed, "experiment"), kinds: event.NewRandom(seed, "kinds")}
	d.file = experiment.File{
		ID: fmt.Sprintf("random-%d", seed), Worlds: []string{experiment.WorldSim}, Duration: longEnough, Seeds: []int64{seed},
	}
	d.network()
	d.file.Guests = d.guests(4)
	for i := range d.between(1, 3) {
		d.file.Traffic = append(d.file.Traffic, d.item(i))
	}
	d.scheme()
	d.acdc()
	if d.once(2) {
		l := pick(d, d.rated())
		d.file.Measure.Ports = map[string]string{"watched": experiment.PortName(l.B, l.A)}
	}
	text, err := json.MarshalIndent(&d.file, "", " ")
	if err != nil {
		panic(err)
	}
	return draft{seed, string(text) + "\n", event.Time(d.window), d.file.Topology.Pods > 0}
}

// planned makes the run. JSON is YAML.
func (d *draft) planned() (*experiment.Run, error) {
	f, err := laws.All().Parse(fmt.Sprintf("random-%d.yaml", d.seed), []byte(d.text))
	if err != nil {
		return nil, err
	}
	p, err := f.Plan(experiment.Options{Worlds: []string{experiment.WorldSim}, AssumeAll: true})
	if err != nil {
		return nil, err
	}
	return p.Runs[0], nil
}

func (d *drawer) between(from, to int) int { return from + d.IntN(to-from+1) }

// once returns true once in n times.
func (d *drawer) once(n int) bool { return d.IntN(n) == 0 }

// wide draws from a range of several powers of ten; each power of two has the same probability.
func (d *drawer) wide(from, to int64) int64 {
	v := from << d.IntN(bits.Len64(uint64(to/from)))
	return min(v+d.Int64N(v), to)
}

func pick[T any](d *drawer, list []T) T { return list[d.IntN(len(list))] }

// network draws topology, rates, delays and buffers.
func (d *drawer) network() {
	f := &d.file
	t := &f.Topology
	t.Switch = "bridge"
	t.Kind = pick(d, []string{"dumbbell", "dumbbell", "racks", "leaf_spine", "fat_tree", "fat_tree", "chain"})
	switch t.Kind {
	case "dumbbell":
		t.Senders, t.Receivers = d.between(1, 8), d.between(1, 3)
	case "racks":
		t.Racks, t.Servers = d.between(2, 4), d.between(1, 3)
	case "leaf_spine":
		t.Leaves, t.Spines, t.Servers = d.between(2, 4), d.between(1, 4), d.between(1, 3)
	case "fat_tree":
		t.Cores, t.Aggs, t.ToRs, t.Servers = d.between(1, 4), d.between(1, 4), d.between(2, 4), d.between(1, 3)
	case "chain":
		t.Hops, t.Senders, t.Receivers = d.between(1, 4), d.between(1, 2), d.between(1, 2)
	}
	if t.Kind == "leaf_spine" || t.Kind == "fat_tree" {
		t.Routing = pick(d, []string{"ecmp", "ecmp", "ecmp", "single"})
	}
	if d.once(3) {
		t.Hypervisors, t.VMs = true, d.IntN(4)
	}
	if d.kinds.IntN(10) == 0 {
		t.Kind, t.Pods, t.Routing = "fat_tree", 2+2*d.kinds.IntN(2), "ecmp"
		t.Senders, t.Receivers, t.Racks, t.Leaves, t.Spines, t.Cores, t.Aggs, t.ToRs, t.Servers, t.Hops = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
	}
	n := &f.Network
	n.Rate = law.Rate(d.wide(1e3, 1e7) * 1e3)
	if n.Rate < 1e9 { // between VMs of a server there are 10 Gbit/s: too many packets in the time of a slow network
		t.VMs = min(t.VMs, 1)
	}
	packet := int64(12_300e9) / int64(n.Rate) // nanoseconds of a full frame on the line
	// At most about a hundred packets fill the path, because a longer one takes long to simulate.
	if rtt := d.wide(1000, max(min(300*packet, 100e6), 2000)); d.once(3) {
		n.Delay = law.Duration(max(rtt/8, 1))
	} else {
		n.RTT = law.Duration(rtt)
	}
	n.Buffer = d.buffer()
	d.window = law.Duration(1500 * packet)
	g, err := experiment.BuildGraph(*t, *n)
	if err != nil {
		panic(err)
	}
	d.graph = g
	for range d.IntN(3) {
		d.odd()
	}
}

// buffer draws from barely a packet to more than any path has in flight.
func (d *drawer) buffer() law.Limit {
	if d.once(3) {
		return law.Limit{N: d.wide(1, 500), Packets: true}
	}
	return law.Limit{N: d.wide(1514, 1_000_000)}
}

// rated returns the links with a rate.
func (d *drawer) rated() []experiment.Link {
	var out []experiment.Link
	for _, l := range d.graph.Links {
		if l.Rate > 0 {
			out = append(out, l)
		}
	}
	return out
}

// odd makes a link differ from the others.
func (d *drawer) odd() {
	l := pick(d, d.rated())
	a, b := strings.TrimSuffix(l.A, ".hv"), strings.TrimSuffix(l.B, ".hv")
	rule := experiment.LinkRule{Between: []string{a, b}}
	switch d.IntN(3) {
	case 0:
		rule.Rate = max(law.Rate(d.wide(1, 8))*d.file.Network.Rate/4/1000*1000, 1_000_000)
	case 1:
		rule.Delay = max(law.Duration(d.wide(100, 1000_000)), 1)
	case 2:
		rule.Buffer = d.buffer()
	}
	d.file.Topology.Links = append(d.file.Topology.Links, rule)
}

// guests draws each setting once in n times.
func (d *drawer) guests(n int) experiment.Guests {
	var g experiment.Guests
	if d.once(2) || n > 2 {
		g.CC = pick(d, []string{"reno", "newreno", "sack", "cubic", "dctcp", "d2tcp"})
	}
	truth := func() *bool { v := d.once(2); return &v }
	if d.once(n) {
		g.ECN = truth()
	}
	if d.once(n) {
		g.DelayedACK = truth()
	}
	if d.once(n) {
		g.SACK = truth()
	}
	if d.once(n) {
		v := int(d.wide(1, 64))
		g.InitialWindow = &v
	}
	if d.once(2) {
		v := law.Duration(d.wide(1e6, 1000e6))
		g.RTOMin = &v
	}
	if d.once(n) {
		v := law.Duration(d.wide(10e6, 3000e6))
		g.InitialRTO = &v
	}
	return g
}

// some draws guests, as a list of their names.
func (d *drawer) some(most int) (list string, n int) {
	var names []string
	for _, nd := range d.graph.Nodes {
		if nd.Kind == experiment.Guest {
			names = append(names, nd.Name)
		}
	}
	n = d.between(1, min(most, len(names)))
	d.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return strings.Join(names[:n], ", "), n
}

// ends draws the sources and destinations of data, at least one pair on different hosts.
func (d *drawer) ends(t *experiment.Traffic) (pairs int) {
	for {
		var from, to int
		t.From, from = d.some(6)
		t.To, to = d.some(2)
		if t.From != t.To {
			return from * to
		}
	}
}

// item draws one traffic item that has ended some time after d.window.
func (d *drawer) item(i int) experiment.Traffic {
	t := experiment.Traffic{Name: fmt.Sprintf("t%d", i), Guests: d.guests(12)}
	flows := d.ends(&t)
	t.Start = law.Duration(d.Int64N(int64(d.window)/2 + 1))
	stop := t.Start + 1 + law.Duration(d.Int64N(int64(d.window)))
	t.Pattern = pick(d, []string{"bulk", "cbr", "burst", "burst", "burst", "closed_loop", "closed_loop", "poisson"})
	if d.once(3) {
		t.Data = "pull"
	}
	if t.Pattern != "bulk" && t.Pattern != "cbr" && d.once(3) {
		t.Connection = "persistent"
	}
	switch t.Pattern {
	case "bulk", "cbr":
		if d.once(3) {
			t.Proto, t.Data = "udp", ""
		}
		if t.Pattern == "cbr" {
			t.Rate = max(d.file.Network.Rate/law.Rate(d.wide(1, 32))/1000*1000, 1000)
		}
		if d.once(2) {
			t.Stop = stop
		} else {
			t.Size = d.size(flows)
		}
	case "burst":
		t.Count, t.Epochs = d.between(1, 3), d.between(1, 4)
		t.Every = max(d.window/law.Duration(d.wide(2, 64)), 1)
		t.Size = d.size(flows * t.Count * t.Epochs)
		if d.once(3) {
			t.Gap = max(d.window/law.Duration(d.wide(8, 1000)), 1)
		}
	case "closed_loop":
		t.Requests, t.Concurrency = d.between(1, 12), d.between(1, 3)
		t.Size = d.size(flows * t.Requests)
		if d.once(4) {
			t.Stop = stop
		}
	case "poisson":
		t.Stop = stop
		t.Load = float64(d.between(1, 20)) / 16
		// Each source's link carries up to 1500 packets a window: flows of this size are some dozens.
		t.Size = law.Bytes(d.wide(10_000, 200_000))
	}
	d.more(&t)
	return t
}

// size returns the size of each of that many flows.
func (d *drawer) size(flows int) law.Bytes {
	return law.Bytes(d.wide(1, max(int64(budget*fullBytes/flows), 2)))
}

// more draws keys that only some flows may have.
func (d *drawer) more(t *experiment.Traffic) {
	if t.Size > 0 && t.Proto != "udp" && t.Pattern != "cbr" {
		if d.once(4) {
			t.Deadline = max(d.window/law.Duration(d.wide(1, 100)), 1)
		}
		if d.once(12) {
			t.GiveUp = max(d.window/law.Duration(d.wide(1, 16)), 1)
		}
		if t.Pattern == "burst" && d.once(10) {
			t.Size, t.CDF, t.Deadline = 0, "storage", 0
			t.Count, t.Epochs = 1, 1
		}
	}
}

// scheme draws what the switches do.
func (d *drawer) scheme() {
	s := experiment.Scheme{Name: "scheme", Params: map[string]any{}}
	s.Laws = pick(d, [][]string{{"droptail"}, {"droptail"}, {"ecn"}, {"ecn"}, {"ecn"}, {"red"}, {"static"}, {"ecn", "static"}})
	for _, name := range s.Laws {
		switch name {
		case "ecn", "red":
			l := law.Limit{N: d.wide(1514, 150_000)}
			if d.once(3) {
				l = law.Limit{N: d.wide(1, 100), Packets: true}
			}
			s.Params["threshold"] = l.String()
			if name == "ecn" && d.once(3) {
				s.Params["not_ect"] = "drop"
			}
		case "static":
			// The rate is not far below the links' rate. Hundreds of flows behind a far slower one would wait for
			// longer than any timeout, and connections would give up correctly.
			s.Params["rate"] = max(d.file.Network.Rate/law.Rate(d.wide(1, 4))/1000*1000, 1000).String()
			s.Params["depth"] = law.Duration(d.wide(1000, 25e6)).String()
		}
	}
	if d.once(2) {
		ecn := true
		s.Guests.ECN = &ecn
	}
	if d.kinds.IntN(8) == 0 {
		d.fairq(&s)
	}
	if len(s.Params) == 0 {
		s.Params = nil
	}
	d.file.Schemes = []experiment.Scheme{s}
}

// fairq replaces the laws by FairQ. Its T is at most a few packets' time, because packets must wait long enough to be
// sampled. Scales are learned: unify changes SYNs, and the ledger of what hosts sent would take that for a bug.
func (d *drawer) fairq(s *experiment.Scheme) {
	packet := max(int64(12_300e9)/int64(d.file.Network.Rate), 1000)
	updates := 1 << d.kinds.IntN(5)
	s.Laws = []string{"fairq"}
	s.Params = map[string]any{
		"interval":        law.Duration(min(max(packet/4+d.kinds.Int64N(4*packet), 1000), 1e9/int64(updates))).String(),
		"updates":         updates,
		"target_fraction": float64(1+d.kinds.IntN(15)) / 16,
		"gain":            []string{"paper", "code"}[d.kinds.IntN(2)],
		"count":           []string{"active", "handshake", "opening"}[d.kinds.IntN(3)],
		"shrink":          []string{"allow", "avoid"}[d.kinds.IntN(2)],
	}
	d.fairqVariant(s.Params)
}

// fairqVariant draws how FairQ is deployed. It has its own source of random numbers.
func (d *drawer) fairqVariant(params map[string]any) {
	own := &drawer{Rand: event.NewRandom(d.file.Seeds[0], "fairq variant")}
	if own.once(3) {
		params["edge"] = true
		params["edge_interval"] = law.Duration(own.wide(1e6, 500e6)).String()
	}
	if own.once(3) {
		params["paths"], params["undivided"] = own.between(1, 4), own.once(3)
	}
	if own.once(3) {
		params["fairswitch"], params["gain"] = true, "paper"
	}
}

// acdc makes one scheme of six AC/DC. It has its own source of random numbers, so that the other experiments do not
// change.
func (d *drawer) acdc() {
	own := &drawer{Rand: event.NewRandom(d.file.Seeds[0], "acdc")}
	if !own.once(6) || slices.Contains(d.file.Schemes[0].Laws, "fairq") {
		return
	}
	s := experiment.Scheme{Name: "scheme", Laws: []string{"acdc"}, Guests: d.file.Schemes[0].Guests, Params: map[string]any{}}
	own.once(4) // once for a pair of laws that is now refused: the later draws do not change
	l := law.Limit{N: own.wide(1514, 150_000)}
	if own.once(3) {
		l = law.Limit{N: own.wide(1, 100), Packets: true}
	}
	s.Params["threshold"] = l.String()
	if own.once(2) {
		s.Params["police"] = true
	}
	if own.once(3) {
		s.Params["min_window"] = law.Bytes(own.wide(1, 100_000)).String()
	}
	if own.once(3) {
		s.Params["gain"] = 1 / float64(own.between(1, 64))
	}
	if own.once(3) {
		s.Params["timeout"] = law.Duration(own.wide(1000, 1000e6)).String()
	}
	d.file.Schemes[0] = s
}

func splitLines(text string) []string { return strings.Split(strings.TrimSuffix(text, "\n"), "\n") }
