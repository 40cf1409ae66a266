package lab

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/experiment"
)

// troubleOfSwitches tells which Open vSwitch has ended, and what one lost that no queue of its ports counted.
func (l *Lab) troubleOfSwitches() []string {
	o, ok := l.fabric.(ovs)
	if !ok {
		return nil
	}
	var lines []string
	for _, n := range l.plan.nodes {
		if n.kind != experiment.Switch {
			continue
		}
		d, err := l.ovsDaemons(n)
		if err == nil {
			err = d.alive()
		}
		lost := ""
		if err == nil && !o.kernel {
			lost, err = l.lostIn(n, d)
		}
		if err != nil {
			lost = err.Error()
		}
		if lost != "" {
			lines = append(lines, fmt.Sprintf("topology.switch ovs on %s: %s", n.name, lost))
		}
	}
	return lines
}

// lostIn speaks of frames that were lost in a switch and that are no drops of a queue: trap 5. Open vSwitch in user
// space sends up to 32 frames with one call. When a queue refuses one, it offers that one again and throws the rest
// away, though there may be room for them. The queue's count of drops then knows the refused frame twice and the
// others not at all. Frames that came in and never went out are the truth.
func (l *Lab) lostIn(n *node, d *ovsDaemons) (string, error) {
	unread, err := d.unread()
	if err != nil {
		return "", err
	}
	lost, refused, err := l.countFrames(n)
	if err != nil || lost <= refused {
		return "", err
	}
	return fmt.Sprintf("of %d frames that it lost full queues refused %d and %d were not read in time; the rest a law dropped, or it threw them away behind a refused one",
		lost, refused, unread), nil
}

// countFrames gives how many frames came in at the ports of n and did not go out by one, nor wait to, and how often a
// queue refused one.
func (l *Lab) countFrames(n *node) (lost, refused uint64, err error) {
	err = l.Enter(n.name, func() (err error) {
		lost, refused, err = n.countFramesHere()
		return err
	})
	return lost, refused, err
}

// countFramesHere runs in the namespace. What came in is read first, so that what is under way is not taken for lost.
func (n *node) countFramesHere() (lost, refused uint64, err error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return 0, 0, err
	}
	defer h.Close()
	var in, out uint64
	for _, p := range n.ports {
		link, err := h.LinkByIndex(p.ifindex)
		if err != nil {
			return 0, 0, err
		}
		in += link.Attrs().Statistics.RxPackets
	}
	for _, p := range n.ports {
		link, err := h.LinkByIndex(p.ifindex)
		if err != nil {
			return 0, 0, err
		}
		queues, err := h.QdiscList(link)
		if err != nil {
			return 0, 0, err
		}
		for _, q := range queues {
			if q.Attrs().Parent == netlink.HANDLE_ROOT && q.Attrs().Statistics != nil {
				s := q.Attrs().Statistics.Queue
				out, refused = out+uint64(s.Qlen), refused+uint64(s.Drops)
			}
		}
		out += link.Attrs().Statistics.TxPackets
	}
	if out >= in {
		return 0, refused, nil
	}
	return in - out, refused, nil
}
