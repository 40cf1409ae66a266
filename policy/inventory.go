package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"weir/config"
	"weir/law"
)

// Limits of an inventory.
const (
	MaxNodes   = 4096
	MaxTargets = 4096 // ports and VMs of a node
	MaxUpward  = 16   // switches that a host is connected to
)

// Node is what an agent reports of its machine: a host with VMs, a switch with ports, or both. Controllers write it to the
// policy store.
type Node struct {
	Name   string            `json:"name"` // of the agent
	Labels map[string]string `json:"labels,omitempty"`
	Host   *NodeHost         `json:"host,omitempty"`
	Switch *NodeSwitch       `json:"switch,omitempty"`
	// Laws are those that can run at the node, by its agent or by a controller for it. nil: not known, and not checked.
	Laws []string `json:"laws,omitempty"`
}

// NodeHost is a hypervisor.
type NodeHost struct {
	ID   law.Host `json:"id"`
	Rate law.Rate `json:"rate,omitempty"` // of the uplink; 0: not known
	VMs  []NodeVM `json:"vms,omitempty"`
	// Switches are the nodes that the host says it is connected to. Only their ports limit what can be guaranteed here.
	Switches []string `json:"switches,omitempty"`
}

// NodeVM is a VM of a host.
type NodeVM struct {
	ID     law.VM            `json:"id"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	Port   string            `json:"port,omitempty"` // device of the host
}

// NodeSwitch is a switch.
type NodeSwitch struct {
	ID    law.Switch `json:"id"`
	Ports []NodePort `json:"ports,omitempty"`
}

// NodePort is a port of a switch.
type NodePort struct {
	N      uint32            `json:"n"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	Rate   law.Rate          `json:"rate,omitempty"`   // 0: not known
	Buffer law.Bytes         `json:"buffer,omitempty"` // 0: not known
	Peer   string            `json:"peer,omitempty"`   // the host that the port leads to; "": none, or not known
}

// Check returns an error for a node that is outside the limits, or ambiguous.
func (n *Node) Check() error {
	if !ValidNode(n.Name) {
		return fmt.Errorf("node %q: a name has 1 to %d of a-z, 0-9 and -", config.Clip(n.Name), MaxName)
	}
	if err := checkLabels(n.Labels); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	if len(n.Laws) > MaxTargets || slices.ContainsFunc(n.Laws, func(l string) bool { return len(l) > MaxName }) {
		return fmt.Errorf("node %s: too many laws, or names that are too long", n.Name)
	}
	u := unique{of: n.Name, names: map[string]bool{}, numbers: map[uint64]bool{}}
	if h := n.Host; h != nil {
		if len(h.VMs) > MaxTargets || h.Rate < 0 {
			return fmt.Errorf("node %s: %d VMs, want at most %d, and a rate of %d bit/s", n.Name, len(h.VMs), MaxTargets, h.Rate)
		}
		if len(h.Switches) > MaxUpward || slices.ContainsFunc(h.Switches, func(s string) bool { return !ValidNode(s) }) {
			return fmt.Errorf("node %s: it has %d switches, want the names of at most %d nodes", n.Name, len(h.Switches), MaxUpward)
		}
		for i := range h.VMs {
			v := &h.VMs[i]
			if err := u.add("VM", v.Name, uint64(v.ID), v.Labels); err != nil {
				return err
			}
			if !validText(v.Port) || v.ID == 0 {
				return fmt.Errorf("node %s: VM %s has the port %q and the number %d", n.Name, v.Name, config.Clip(v.Port), v.ID)
			}
		}
	}
	u.names, u.numbers = map[string]bool{}, map[uint64]bool{}
	if s := n.Switch; s != nil {
		if len(s.Ports) > MaxTargets {
			return fmt.Errorf("node %s: %d ports, want at most %d", n.Name, len(s.Ports), MaxTargets)
		}
		for i := range s.Ports {
			p := &s.Ports[i]
			if err := u.add("port", p.Name, uint64(p.N), p.Labels); err != nil {
				return err
			}
			if p.Rate < 0 || p.Buffer < 0 || p.Peer != "" && !ValidNode(p.Peer) {
				return fmt.Errorf("node %s: port %s has a rate of %d, a buffer of %d and the peer %q", n.Name, p.Name, p.Rate, p.Buffer, config.Clip(p.Peer))
			}
		}
	}
	return nil
}

// unique finds names and numbers that a node has twice.
type unique struct {
	of      string
	names   map[string]bool
	numbers map[uint64]bool
}

func (u *unique) add(what, name string, number uint64, labels map[string]string) error {
	switch {
	case !ValidName(name):
		return fmt.Errorf("node %s: %s %q is not a name", u.of, what, config.Clip(name))
	case u.names[name] || u.numbers[number]:
		return fmt.Errorf("node %s: %s %s, number %d: the node has this name or number twice", u.of, what, name, number)
	}
	u.names[name], u.numbers[number] = true, true
	if err := checkLabels(labels); err != nil {
		return fmt.Errorf("node %s: %s %s: %w", u.of, what, name, err)
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("%d labels, want at most %d", len(labels), MaxLabels)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if !validLabelKey(key) || !validText(labels[key]) {
			return fmt.Errorf("the label %q: %q; %s", config.Clip(key), config.Clip(labels[key]), labelForm)
		}
	}
	return nil
}

const labelForm = "a label has 1 to 63 bytes of printable UTF-8, and its value at most 63"

// ValidNode reports whether a text is a name of a node or policy: 1 to 63 of a-z, 0-9 and -, and it does not begin with -. Agents
// have such names on the bus.
func ValidNode(name string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789-"
	return name != "" && len(name) <= MaxName && name[0] != '-' && strings.Trim(name, allowed) == ""
}

// ValidName reports whether a text is a name of a port or VM: 1 to 63 bytes of printable UTF-8 without spaces, / and *.
func ValidName(name string) bool {
	return name != "" && validText(name) && !strings.ContainsAny(name, " /*")
}

// validText is the rule of the bus for names and labels. A text cannot control a terminal.
func validText(s string) bool {
	return len(s) <= MaxName && printable(s)
}

// printable reports whether a text cannot control a terminal.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) })
}

func validLabelKey(key string) bool { return key != "" && validText(key) }

// Target is a port, host or VM of the inventory.
type Target struct {
	Kind   Kind       `json:"kind"`
	Node   string     `json:"node"`
	Name   string     `json:"name"` // of the port or VM; of a host: that of the node
	Switch law.Switch `json:"switch,omitempty"`
	Port   uint32     `json:"port,omitempty"`
	Host   law.Host   `json:"host,omitempty"`
	VM     law.VM     `json:"vm,omitempty"`

	labels map[string]string
	laws   []string // see Node.Laws
}

// String returns the kind and the place: "vm h1/web1".
func (t *Target) String() string {
	switch {
	case t.Kind == Host:
		return string(t.Kind) + " " + t.Node
	case t.Node == "": // not in the inventory
		return string(t.Kind) + " " + t.Name
	}
	return string(t.Kind) + " " + t.Node + "/" + t.Name
}

// selectName returns the name by which policies select the target.
func (t *Target) selectName() string {
	if t.Kind == Port {
		return t.Node + "/" + t.Name
	}
	return t.Name
}

// targets lists the targets of an inventory, sorted by kind, node and name.
func targets(inventory []Node) []Target {
	nodes := slices.Clone(inventory)
	slices.SortFunc(nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	var ports, hosts, vms []Target
	byName := func(a, b Target) int { return strings.Compare(a.Name, b.Name) }
	for i := range nodes {
		n := &nodes[i]
		first := len(ports)
		if s := n.Switch; s != nil {
			for _, p := range s.Ports {
				ports = append(ports, Target{Kind: Port, Node: n.Name, Name: p.Name, Switch: s.ID, Port: p.N, labels: p.Labels, laws: n.Laws})
			}
		}
		slices.SortFunc(ports[first:], byName)
		h := n.Host
		if h == nil {
			continue
		}
		hosts = append(hosts, Target{Kind: Host, Node: n.Name, Name: n.Name, Host: h.ID, labels: n.Labels, laws: n.Laws})
		first = len(vms)
		for _, v := range h.VMs {
			vms = append(vms, Target{Kind: VM, Node: n.Name, Name: v.Name, Host: h.ID, VM: v.ID, labels: v.Labels, laws: n.Laws})
		}
		slices.SortFunc(vms[first:], byName)
	}
	return slices.Concat(ports, hosts, vms)
}

// capacities returns, for each host, the most that its VMs can be guaranteed together: the rate of its uplink, and at most that
// of the switch ports that lead to it. A port counts if both agents say so: that of the switch has the host as peer, and the host
// has the switch among its own. One agent alone could lower what is guaranteed at another's host, or lift its limit. 0: not known.
func capacities(inventory []Node) map[string]law.Rate {
	type ports struct {
		rate    law.Rate // their sum
		unknown bool     // one of them has no rate
	}
	down := map[[2]string]ports{} // by switch and host
	for i := range inventory {
		s := inventory[i].Switch
		if s == nil {
			continue
		}
		for _, p := range s.Ports {
			at := down[[2]string{inventory[i].Name, p.Peer}]
			down[[2]string{inventory[i].Name, p.Peer}] = ports{at.rate + p.Rate, at.unknown || p.Rate == 0}
		}
	}
	out := map[string]law.Rate{}
	for i := range inventory {
		h, name := inventory[i].Host, inventory[i].Name
		if h == nil {
			continue
		}
		var all ports
		for _, s := range slices.Compact(slices.Sorted(slices.Values(h.Switches))) {
			at := down[[2]string{s, name}]
			all = ports{all.rate + at.rate, all.unknown || at.unknown}
		}
		out[name] = h.Rate
		if all.rate > 0 && !all.unknown && h.Rate > 0 {
			out[name] = min(h.Rate, all.rate)
		}
	}
	return out
}
