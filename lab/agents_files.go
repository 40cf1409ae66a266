package lab

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"weir/experiment"
	"weir/law"
)

// The files of a lab's agents, and the queues of uplinks that these agents replace.

func agentFile(n *node, url, keys, state string) string {
	return fmt.Sprintf("kind: Agent\nname: %s\nbus: {urls: [%q], keys: %s}\nstate: %s\nmetrics: {listen: \"\"}\n", agentName(n), url, keys, state)
}

// hostSection is the role host of a hypervisor. A guest's VM has its addresses for all profiles. half: the law whose half runs there,
// and its parameters; "": none, and rates of VMs are not limited. deadlines: the section about deadlines; "": none.
func hostSection(n *node, half, deadlines string) string {
	var uplink, laws string
	var vms []string
	for _, p := range n.ports {
		if p.peer.kind != experiment.Guest {
			uplink = "port: " + p.ifname
			if half != "" {
				uplink += fmt.Sprintf(", rate: %v", p.rate)
				laws = fmt.Sprintf("  laws: %s\n", half)
			}
			continue
		}
		from := addressesOf(p.peer)
		vms = append(vms, fmt.Sprintf("    - {vm: %d, name: %q, port: %s, mac: %q, addresses: [%s]}\n",
			vmOf(p.peer), p.peer.name, p.ifname, p.far.mac, strings.Join(from, ", ")))
	}
	return fmt.Sprintf("host:\n  number: %d\n  uplink: {%s}\n%s%s  vms:\n%s", n.index+1, uplink, laws, deadlines, strings.Join(vms, ""))
}

// addressesOf lists the addresses of a guest for all profiles.
func addressesOf(guest *node) (out []string) {
	for _, profile := range guest.profiles {
		out = append(out, guest.addr(profile).String())
	}
	return out
}

// peersSection lists, for the role host of a hypervisor, the others and the addresses of their VMs.
func peersSection(of *node, hosts []*node) string {
	var b strings.Builder
	b.WriteString("  peers:\n")
	for _, n := range hosts {
		if n == of {
			continue
		}
		var from []string
		for _, p := range n.ports {
			if p.peer.kind == experiment.Guest {
				from = append(from, addressesOf(p.peer)...)
			}
		}
		fmt.Fprintf(&b, "    - {agent: %s, addresses: [%s]}\n", agentName(n), strings.Join(from, ", "))
	}
	return b.String()
}

// giveUplinks removes the TBFs of hypervisors' uplinks: their agents put HTB there, with the same rate.
func (c *controlled) giveUplinks(hosts []*node) error {
	for _, n := range hosts {
		for _, p := range n.ports {
			if p.peer.kind == experiment.Guest || p.rate == 0 {
				continue
			}
			err := c.lab.withNetlink(n.name, func(h *netlink.Handle) error { return h.QdiscDel(tbf(p, p.rate)) })
			if err != nil {
				return fmt.Errorf("port %s: give its queue to the agent: %w", p.name, err)
			}
			c.uplinks = append(c.uplinks, p)
		}
	}
	return nil
}

// takeUplinks shapes them again. An agent that was killed has left its HTB.
func (c *controlled) takeUplinks() error {
	var errs []error
	for _, p := range c.uplinks {
		errs = append(errs, c.lab.withNetlink(p.node.name, func(h *netlink.Handle) error {
			list, err := h.QdiscList(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: p.ifindex}})
			if err != nil {
				return err
			}
			for _, q := range list {
				if q.Type() == "htb" && q.Attrs().Parent == netlink.HANDLE_ROOT {
					err = errors.Join(err, h.QdiscDel(q))
				}
			}
			return errors.Join(err, shape(h, p))
		}))
	}
	c.uplinks = nil
	return errors.Join(errs...)
}

// vmOf is the number of a guest's VM.
func vmOf(guest *node) law.VM { return law.VM(guest.index + 1) }

// switchSection is the role switch of a switch: all of its shaped ports.
func (l *Lab) switchSection(n *node, every law.Duration, asked []law.Signal) string {
	var b strings.Builder
	fmt.Fprintf(&b, "switch:\n  number: %d\n", n.subnet)
	if every > 0 {
		fmt.Fprintf(&b, "  interval: %v\n", every)
	}
	var signals []string
	for signal, name := range map[law.Signal]string{law.Marks: "marks", law.Arrivals: "arrivals", law.Progress: "progress"} {
		if slices.Contains(asked, signal) {
			signals = append(signals, name)
		}
	}
	slices.Sort(signals)
	fmt.Fprintf(&b, "  signals: [%s]\n  ports:\n", strings.Join(signals, ", "))
	for i, p := range n.ports {
		if p.rate > 0 {
			fmt.Fprintf(&b, "    - {port: %s, number: %d}\n", p.ifname, ofPort(i))
		}
	}
	if slices.Contains(asked, law.Marks) {
		b.WriteString("  sources:\n")
		for _, g := range l.plan.guests() {
			for _, profile := range g.profiles {
				fmt.Fprintf(&b, "    - {vm: %d, addresses: [%v]}\n", vmOf(g), g.addr(profile))
			}
		}
	}
	return b.String()
}
