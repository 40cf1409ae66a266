package lab

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"weir/experiment/result"
)

// unmetList collects the settings that could not be made. A cause on many nodes is one line.
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

// list returns the lines with the key and the severity of each.
func (u *unmetList) list() []result.Unmet {
	var out []result.Unmet
	for _, line := range u.lines() {
		key, _, _ := strings.Cut(line, " ")
		severity := result.Warning
		if slices.Contains(fatalKeys, key) {
			severity = result.Fatal
		}
		out = append(out, result.Unmet{Key: key, Severity: severity, Text: line})
	}
	return out
}

// fatalKeys are settings that define a scheme: guests with another congestion control, or without ECN under
// marking, are not what a claim compares.
var fatalKeys = []string{"guests.cc", "guests.ecn", "guests.stack"}

// lines returns the causes as text, sorted: "guests.cc dctcp on sender1 and 15 more: this kernel ...".
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
