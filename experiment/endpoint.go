package experiment

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"weir/config"
)

// Endpoint patterns:
//
//	receiver1            one node
//	sender*              all senders
//	sender2..4           2, 3, 4
//	sender2..            from 2 to the last
//	sender1../5          senders 1, 6, 11 ...
//	rack1..3.server*     the servers of several racks
//	sender1, sender3     both
//
// A pattern that names a server with VMs selects all its VMs. "*" stands for a number: agg* does not match
// aggregator.

var (
	labelPattern = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	partPattern  = regexp.MustCompile(`^([a-z][a-z0-9_]*?)(\*|([0-9]+)\.\.([0-9]*)(?:/([0-9]+))?|[0-9]+)?(\.|$)`)
	namePattern  = regexp.MustCompile(`^([a-z][a-z0-9_]*?)([0-9]*)$`)
)

const labelRule = "a-z, then a-z, 0-9 and _"

// part is one dot-separated part of a pattern.
type part struct {
	name     string
	any      bool // "*"
	ranged   bool
	from, to int
	step     int
}

func parsePattern(text string) ([]part, error) {
	var parts []part
	rest := text
	for rest != "" || len(parts) == 0 {
		m := partPattern.FindStringSubmatch(rest)
		if m == nil {
			return nil, fmt.Errorf("%q is not a pattern of nodes", config.Clip(text))
		}
		p := part{name: m[1], any: m[2] == "*"}
		switch {
		case m[3] != "":
			p.ranged, p.step, p.to = true, 1, math.MaxInt
			p.from, _ = strconv.Atoi(m[3])
			if m[4] != "" {
				p.to, _ = strconv.Atoi(m[4])
			}
			if m[5] != "" {
				p.step, _ = strconv.Atoi(m[5])
			}
			if p.step < 1 || p.to < p.from {
				return nil, fmt.Errorf("the range in %q is empty", config.Clip(text))
			}
		case !p.any:
			p.name += m[2]
		}
		parts = append(parts, p)
		rest = rest[len(m[0]):]
		if m[6] == "." && rest == "" {
			return nil, fmt.Errorf("%q ends with a dot", config.Clip(text))
		}
		if m[6] == "" {
			break
		}
	}
	return parts, nil
}

// matches reports whether one part of a node's name matches.
func (p part) matches(name string) bool {
	if !p.any && !p.ranged {
		return name == p.name
	}
	number, ok := strings.CutPrefix(name, p.name)
	if !ok {
		return false
	}
	n, err := strconv.Atoi(number)
	if err != nil || number != strconv.Itoa(n) {
		return false // agg* matches agg1 and agg2, not aggregator
	}
	return p.any || n >= p.from && n <= p.to && (n-p.from)%p.step == 0
}

// Select returns the names of the nodes of a kind that match a pattern, or a comma-separated list of patterns, in
// the order of the graph. A pattern that matches nothing is an error.
func (g *Graph) Select(pattern string, kind NodeKind) ([]string, error) {
	return g.match(pattern, &kind)
}

// match is Select for one kind; with nil it selects guests (or their servers) and switches.
func (g *Graph) match(pattern string, kind *NodeKind) ([]string, error) {
	chosen := map[string]bool{}
	for _, one := range strings.Split(pattern, ",") {
		parts, err := parsePattern(strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		found := false
		for _, n := range g.Nodes {
			if kind != nil && n.Kind != *kind {
				continue
			}
			name := n.Name
			if kind == nil {
				name = strings.TrimSuffix(name, hypervisorSuffix)
			}
			if fits(parts, strings.Split(name, ".")) {
				found, chosen[name] = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("%q matches no %s", config.Clip(strings.TrimSpace(one)), g.kindText(kind))
		}
	}
	var names []string
	for _, n := range g.Nodes {
		name := n.Name
		if kind == nil {
			name = strings.TrimSuffix(name, hypervisorSuffix)
		}
		if chosen[name] && (kind == nil || n.Kind == *kind) {
			names = append(names, name)
			delete(chosen, name)
		}
	}
	return names, nil
}

func (g *Graph) kindText(kind *NodeKind) string {
	if kind != nil && *kind == Switch {
		return "switch"
	}
	if kind == nil {
		return "node"
	}
	return "guest"
}

// fits reports whether a name matches the parts of a pattern; the name may have a VM part after them.
func fits(parts []part, name []string) bool {
	behind := len(name) == len(parts)+1 && strings.HasPrefix(name[len(parts)], "vm")
	if len(parts) != len(name) && !behind {
		return false
	}
	for i, p := range parts {
		if !p.matches(name[i]) {
			return false
		}
	}
	return true
}

// families describes the nodes of a kind for an error: "sender1..16, receiver1".
func (g *Graph) families(kind NodeKind) string {
	last := map[string]int{}
	var order []string
	for _, name := range g.nodes(kind) {
		m := namePattern.FindStringSubmatch(name[strings.LastIndexByte(name, '.')+1:])
		family := name
		if m != nil && m[2] != "" {
			family = strings.TrimSuffix(name, m[2])
		}
		if _, known := last[family]; !known {
			order = append(order, family)
		}
		last[family]++
	}
	var out []string
	for _, f := range order {
		switch n := last[f]; {
		case n == 1 && g.Node(f) != nil:
			out = append(out, f)
		case n == 1:
			out = append(out, f+"1")
		default:
			out = append(out, fmt.Sprintf("%s1..%d", f, n))
		}
		if len(out) == 12 && len(order) > 12 {
			return strings.Join(out, ", ") + ", ..."
		}
	}
	return strings.Join(out, ", ")
}

// index returns the value that same_index compares: the numbers in a guest's name, without those of its rack or
// switch. An extra host has no number: its index is its name.
func index(name string) string {
	parts := strings.Split(name, ".")
	if len(parts) > 1 && !strings.HasPrefix(parts[1], "vm") {
		parts = parts[1:]
	}
	var numbers []string
	for _, p := range parts {
		if m := namePattern.FindStringSubmatch(p); m != nil && m[2] != "" {
			numbers = append(numbers, m[2])
		}
	}
	if len(numbers) == 0 {
		return name
	}
	return strings.Join(numbers, ".")
}

// pairs combines sources and destinations. A node is never paired with itself.
func pairs(from, to []string, how string) []Pair {
	var out []Pair
	ends := make([]string, len(to))
	for k, dst := range to {
		ends[k] = index(dst)
	}
	for _, src := range from {
		start := index(src)
		for k, dst := range to {
			same := start == ends[k]
			if src == dst || how == "same_index" && !same || how == "other_index" && same {
				continue
			}
			out = append(out, Pair{Src: src, Dst: dst})
		}
	}
	return out
}
