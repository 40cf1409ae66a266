package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/experiment"
)

// troubleOfSwitches returns which Open vSwitch has ended, and frames lost in a switch that no queue of its ports
// counted.
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
		if errors.Is(err, errNoCount) {
			err = nil // troubleOfController reports it, once
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

// lostIn describes frames that were lost in a switch and that no queue refused: those that it was too slow to
// read, and those that followed a frame that a law dropped (trap 5). A few are lost when it changes its flows.
func (l *Lab) lostIn(n *node, d *ovsDaemons) (string, error) {
	unread, err := d.unread()
	if err != nil {
		return "", err
	}
	// Frames in the switch look lost. Repeat until the number no longer falls.
	in, lost, refused, err := l.countFrames(n)
	for range settleLooks {
		if err != nil || lost <= refused {
			return "", err
		}
		before := lost
		time.Sleep(settlePause)
		if in, lost, refused, err = l.countFrames(n); err == nil && lost == before {
			break
		}
	}
	negligible := in / lostNegligible
	if l.hasController() { // a probe that is just sent or received
		negligible += uint64(2 * len(n.ports))
	}
	if err != nil || lost-min(lost, refused) <= negligible {
		return "", err
	}
	return fmt.Sprintf("it lost %d frames: full queues refused %d, %d were not read in time; a law or Open vSwitch dropped the others",
		lost, refused, unread), nil
}

const (
	// Number of readings until frames in the switch have left it, and the time between two of them.
	settleLooks = 50
	settlePause = 20 * time.Millisecond
	// lostNegligible: losses below one frame in this many are not reported.
	lostNegligible = 1000
)

// countFrames returns how many frames arrived at the ports of n, how many of them neither left nor wait in a
// queue, and how often a queue refused one.
func (l *Lab) countFrames(n *node) (in, lost, refused uint64, err error) {
	now, err := l.countAll(n)
	if err != nil {
		return 0, 0, 0, err
	}
	before := l.atFirst[n]
	in, out := now.in-before.in, now.out-before.out
	return in, in - min(in, out), now.refused - before.refused, nil
}

// frames are counts since the switch was made, without the controller's probes, which begin and end in a switch.
type frames struct{ in, out, refused uint64 }

func (l *Lab) countAll(n *node) (f frames, err error) {
	err = l.Enter(n.name, func() (err error) {
		f, err = n.countFramesHere()
		return err
	})
	if err != nil || !l.hasController() {
		return f, err
	}
	s, err := l.controllerStatus(context.Background())
	if err != nil {
		return f, errNoCount
	}
	probes := map[string]uint64{}
	for _, d := range s.Forward.Switches {
		probes[d.ID] = d.Probes
	}
	for _, p := range n.ports {
		// All ports of a switch are probed equally often.
		f.out -= probes[n.datapath()] / uint64(len(n.ports))
		if p.peer.kind == experiment.Switch {
			f.in -= probes[p.peer.datapath()] / uint64(len(p.peer.ports))
		}
	}
	return f, nil
}

var errNoCount = errors.New("without the controller the number of its own frames is not known")

// countAtFirst records how many frames the controller sent and received before any traffic.
func (l *Lab) countAtFirst() error {
	l.atFirst = map[*node]frames{}
	for _, n := range l.plan.nodes {
		if n.kind != experiment.Switch {
			continue
		}
		f, err := l.countAll(n)
		if err != nil {
			return err
		}
		l.atFirst[n] = f
	}
	return nil
}

// countFramesHere runs in the namespace. It reads the received frames first, so that frames in the switch are not
// counted as lost.
func (n *node) countFramesHere() (f frames, err error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return f, err
	}
	defer h.Close()
	for _, p := range n.ports {
		link, err := h.LinkByIndex(p.ifindex)
		if err != nil {
			return f, err
		}
		f.in += link.Attrs().Statistics.RxPackets
	}
	for _, p := range n.ports {
		link, err := h.LinkByIndex(p.ifindex)
		if err != nil {
			return f, err
		}
		queues, err := h.QdiscList(link)
		if err != nil {
			return f, err
		}
		for _, q := range queues {
			if q.Attrs().Parent == netlink.HANDLE_ROOT && q.Attrs().Statistics != nil {
				s := q.Attrs().Statistics.Queue
				f.out, f.refused = f.out+uint64(s.Qlen), f.refused+uint64(s.Drops)
			}
		}
		f.out += link.Attrs().Statistics.TxPackets
	}
	return f, nil
}
