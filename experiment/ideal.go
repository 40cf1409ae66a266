package experiment

import (
	"math"
	"time"

	"weir/experiment/result"
	"weir/law"
)

// Bytes on the line of a frame without payload: Ethernet, IPv4 and TCP headers, preamble, CRC and gap. TCP options
// are left out because the ideal time is a lower bound.
const emptyFrame = 14 + 20 + 20 + 24

// ideal returns a function for the ideal completion time of a flow. The flow has the whole path to itself and a
// sender that never waits for a window. The time is the messages that precede the data (SYN, SYN-ACK, the request
// of a pull), then the flow's frames back to back over every line. The result 0 means: not known, for a flow
// without a size or between guests of one server.
//
// If there are equal paths it uses the first. The lab adds no delay of its own: there each crossing takes half of
// the measured round trip.
func (r *Run) ideal() func(f *result.Flow, raw *result.Raw) time.Duration {
	items := map[string]*Item{}
	for i := range r.Config.Items {
		items[r.Config.Items[i].Name] = &r.Config.Items[i]
	}
	ways := newWays(r.Config.Graph)
	return func(f *result.Flow, raw *result.Raw) time.Duration {
		it := items[f.Item]
		if f.Size <= 0 || it == nil || it.Proto == "udp" {
			return 0
		}
		path := ways.between(f.Src, f.Dst)
		if len(path) == 0 {
			return 0
		}
		frame := r.fullFrame(raw)
		cross, last := path.crossing(), path.transfer(float64(f.Size), frame)
		if r.World == WorldLab || r.LabRTT {
			cross = float64(raw.RTT) / 2
			last = cross + float64(f.Size)/frame.payload*frame.line*8e9/path.slowest()
		}
		return time.Duration(float64(crossings(it))*cross + last)
	}
}

// crossings returns how many messages cross the network before the data can.
func crossings(it *Item) int {
	n := 0
	if it.Connection != "persistent" {
		n = 2
	}
	if it.Data == "pull" {
		n++
	}
	return n
}

// frameSize is the payload of a full frame and its size on the line, in bytes.
type frameSize struct{ payload, line float64 }

func (r *Run) fullFrame(raw *result.Raw) frameSize {
	if r.World == WorldLab {
		return frameSize{1448, 1448 / result.PayloadShareLab}
	}
	line := 1448 / result.PayloadShareSim
	if r.LabRTT { // with the lab's rates
		line = 1448 / result.PayloadShareLab
	}
	if raw.PayloadShare > 0 {
		return frameSize{raw.PayloadShare * line, line}
	}
	return frameSize{1448, line}
}

// way is the shaped links from one guest to another.
type way []*Link

// crossing returns the time of an empty frame, in ns.
func (w way) crossing() float64 {
	ns := 0.0
	for _, l := range w {
		ns += float64(l.Delay) + emptyFrame*8e9/float64(l.Rate)
	}
	return ns
}

func (w way) slowest() float64 {
	least := math.Inf(1)
	for _, l := range w {
		least = min(least, float64(l.Rate))
	}
	return least
}

// transfer returns the time from a flow's first byte sent to its last byte received, in ns. All frames but the
// last are full; each line sends them one after the other.
func (w way) transfer(size float64, frame frameSize) float64 {
	frames := math.Ceil(size / frame.payload)
	rest := size - (frames-1)*frame.payload + (frame.line - frame.payload) // size of the last frame
	full, end := 0.0, 0.0                                                  // when the last full frame, and the very last, has left the line
	slowest := math.Inf(1)
	for _, l := range w {
		rate := float64(l.Rate) / 8e9
		slowest = min(slowest, rate)
		if frames > 1 {
			full += frame.line/rate + float64(l.Delay)
			end = max(end+float64(l.Delay), full+(frames-2)*frame.line/slowest)
		} else {
			end += float64(l.Delay)
		}
		end += rest / rate
	}
	return end
}

// ways finds paths of the fewest links through the switches. It keeps a tree for each switch that data has come
// from.
type ways struct {
	number map[string]int32 // of each switch
	next   [][]hop          // of each switch
	access map[string]*Link // the shaped link of each guest
	at     map[string]int32 // the switch of each guest
	trees  map[int32][]hop  // by root: the next link towards it from each switch
}

// hop is a link to a switch.
type hop struct {
	to   int32
	link *Link
}

func newWays(g *Graph) *ways {
	w := &ways{number: map[string]int32{}, access: map[string]*Link{}, at: map[string]int32{}, trees: map[int32][]hop{}}
	if g == nil {
		return w
	}
	for i := range g.Nodes {
		if g.Nodes[i].Kind == Switch {
			w.number[g.Nodes[i].Name] = int32(len(w.number))
		}
	}
	w.next = make([][]hop, len(w.number))
	servers, behind := map[string]*Link{}, map[string]string{}
	for i := range g.Links {
		l := &g.Links[i]
		a, fromSwitch := w.number[l.A]
		b, toSwitch := w.number[l.B]
		switch {
		case fromSwitch && toSwitch:
			w.next[a], w.next[b] = append(w.next[a], hop{b, l}), append(w.next[b], hop{a, l})
		case toSwitch:
			servers[l.A] = l
		case fromSwitch:
			servers[l.B] = l
		default: // a guest and its hypervisor
			behind[l.A], behind[l.B] = l.B, l.A
		}
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.Kind != Guest {
			continue
		}
		l := servers[n.Name]
		if l == nil {
			l = servers[behind[n.Name]]
		}
		if sw, ok := w.number[n.Attached]; ok && l != nil && l.Rate > 0 {
			w.access[n.Name], w.at[n.Name] = l, sw
		}
	}
	return w
}

// between returns the path from one guest to another; nil: there is none through a switch.
func (w *ways) between(src, dst string) way {
	first, last := w.access[src], w.access[dst]
	if first == nil || last == nil || first == last {
		return nil
	}
	out, root := way{first}, w.at[dst]
	tree := w.tree(root)
	for at := w.at[src]; at != root; {
		step := tree[at]
		if step.link == nil || step.link.Rate <= law.Rate(0) {
			return nil
		}
		out, at = append(out, step.link), step.to
	}
	return append(out, last)
}

// tree returns the first link from every switch towards root.
func (w *ways) tree(root int32) []hop {
	if t := w.trees[root]; t != nil {
		return t
	}
	t := make([]hop, len(w.next))
	for queue := []int32{root}; len(queue) > 0; queue = queue[1:] {
		for _, h := range w.next[queue[0]] {
			if h.to != root && t[h.to].link == nil {
				t[h.to] = hop{queue[0], h.link}
				queue = append(queue, h.to)
			}
		}
	}
	w.trees[root] = t
	return t
}
