package lab

import (
	"fmt"
	"slices"
	"sync"
)

// unmetList gathers what could not be set. One cause on many nodes is one line.
type unmetList struct {
	mu    sync.Mutex
	nodes map[unmetCause][]string
}

type unmetCause struct{ key, value, reason string }

func (u *unmetList) add(node, key, value, reason string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.nodes == nil {
		u.nodes = map[unmetCause][]string{}
	}
	c := unmetCause{key, value, reason}
	if !slices.Contains(u.nodes[c], node) {
		u.nodes[c] = append(u.nodes[c], node)
	}
}

// lines are the causes as text, sorted: "guests.cc dctcp on sender1 and 15 more: this kernel ...".
func (u *unmetList) lines() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var lines []string
	for c, nodes := range u.nodes {
		slices.Sort(nodes)
		where := nodes[0]
		if len(nodes) > 1 {
			where = fmt.Sprintf("%s and %d more", where, len(nodes)-1)
		}
		lines = append(lines, fmt.Sprintf("%s %s on %s: %s", c.key, c.value, where, c.reason))
	}
	slices.Sort(lines)
	return lines
}
