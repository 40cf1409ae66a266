package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weir/controller"
	"weir/experiment"
)

const (
	controllerPort = 6653 // OpenFlow's port (IANA)
	controllerName = "default"
	// controllerPatience is how long discovery may make no progress while something is still missing.
	controllerPatience = time.Minute // TCP sends a SYN again after 1, 2, 4, 8, 16 s
	controllerLook     = 100 * time.Millisecond
)

// process is a child of this process. It survives this process, as a member of the lab's control group.
type process struct {
	*os.Process
	ended chan struct{} // closed when it is reaped: its number may then be that of another process
	err   error         // how it ended, once it has
}

// controllerAddress returns the address that the controller listens on, in the management network.
func (p *plan) controllerAddress() netip.AddrPort {
	return netip.AddrPortFrom(p.byName[controllerNode].mgmt, controllerPort)
}

func (r *record) controllerFile(suffix string) string {
	return filepath.Join(labsDir, r.Name, "controller."+suffix)
}

// hasController reports whether the switches of this lab have a controller.
func (l *Lab) hasController() bool {
	o, ok := l.fabric.(ovs)
	return ok && o.controller.IsValid()
}

// startController starts the controller in its node, as a process of the lab with its file and log in the lab's
// directory. A restarted controller appends to the log.
func (l *Lab) startController() error { return l.startControllerWith("") }

// startControllerWith starts it with further lines of its file.
func (l *Lab) startControllerWith(more string) error {
	text := more + fmt.Sprintf("kind: Controller\nname: %s\nlisten: %s\ngeneration: %s\ntls:\n  ca: %s\n  certificate: %s\n  key: %s\n",
		controllerName, l.plan.controllerAddress(), l.claim.controllerFile("generation"),
		l.claim.certificateFile("ca.pem"), l.claim.certificateFile(controllerNode+".pem"), l.claim.certificateFile(controllerNode+".key"))
	if err := os.WriteFile(l.claim.controllerFile("yaml"), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the controller's file: %w", err)
	}
	if !l.plan.cfg.Graph.Multipath {
		l.unmet.add("all switches", "topology.routing", "single", "the controller uses all shortest paths")
	}
	p, err := l.spawn(controllerNode, l.controllerProgram, l.claim.controllerFile("yaml"), l.claim.controllerFile("log"))
	if err != nil {
		return fmt.Errorf("start the controller: %w", err)
	}
	l.controller = p
	return nil
}

// spawn starts a program with `-f file` in a node, as a process of the lab. Its output is appended to a log. It has real-time
// priority, as the forwarding processes have: it does not wait for the guests' programs.
func (l *Lab) spawn(node string, program []string, file, log string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("write its log: %w", err)
	}
	defer out.Close()
	cmd := exec.Command(program[0], append(slices.Clone(program[1:]), "-f", file)...)
	cmd.Stdout, cmd.Stderr = out, out
	done, err := l.claim.adopt(cmd)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := l.Enter(node, func() error { return preferred(cmd.Start) }); err != nil {
		return nil, err
	}
	p := &process{Process: cmd.Process, ended: make(chan struct{})}
	go func() { p.err = cmd.Wait(); close(p.ended) }()
	return p, nil
}

// preferred runs start on this thread while the thread has priority on the processor; processes that start
// inherits it.
func preferred(start func() error) error {
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return err
	}
	if err := prefer(0); err != nil {
		return err
	}
	return errors.Join(start(), unix.SchedSetAttr(0, before, 0))
}

// awaitController waits until the controller has found every switch, every link and every guest, and has set up
// the switches. The controller learns of guests only from announcements: all guests know each other, so none sends
// ARP requests, and a guest that only receives would stay unknown.
func (l *Lab) awaitController(ctx context.Context, say func(phase string)) error {
	look := time.NewTicker(controllerLook)
	defer look.Stop()
	last, found := "", time.Now()
	for {
		left, err := l.unknown(ctx)
		if err != nil {
			return l.withControllerLog(err)
		}
		if left.none() {
			return nil
		}
		now := left.String()
		if now != last {
			last, found = now, time.Now()
			say("waiting for the controller to find " + now)
		}
		if time.Since(found) > controllerPatience {
			return l.withControllerLog(fmt.Errorf("the controller has not found %s within %v", now, controllerPatience))
		}
		if err := l.announce(left.guests); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-look.C:
		}
	}
}

// unknown lists what the controller has not found yet.
type unknown struct {
	switches, links []string
	guests          []*node
	unsettled       bool // some switch is not configured yet
}

func (u *unknown) none() bool {
	return len(u.switches)+len(u.links)+len(u.guests) == 0 && !u.unsettled
}

func (u *unknown) String() string {
	var words []string
	add := func(kind string, names []string) {
		switch n := len(names); {
		case n == 1:
			words = append(words, names[0])
		case n > 1:
			words = append(words, fmt.Sprintf("%d %s (%s ...)", n, kind, names[0]))
		}
	}
	add("switches", u.switches)
	add("links", u.links)
	var guests []string
	for _, g := range u.guests {
		guests = append(guests, g.name)
	}
	add("guests", guests)
	if len(words) == 0 {
		return "the switches' confirmation of their configuration"
	}
	return strings.Join(words, ", ")
}

// unknown returns what the controller does not know. A controller that does not answer knows nothing. The error is
// permanent.
func (l *Lab) unknown(ctx context.Context) (*unknown, error) {
	select {
	case <-l.controller.ended:
		return nil, l.controllerEnded()
	default:
	}
	s, err := l.controllerStatus(ctx)
	if err != nil {
		s = &controller.Status{}
	}
	if n := s.Core.OrdersRefused; n > 0 {
		return nil, fmt.Errorf("switches refused %d commands of the controller", n)
	}
	return l.plan.unknown(s), nil
}

func (p *plan) unknown(s *controller.Status) *unknown {
	joined, links, hosts := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, d := range s.Forward.Switches {
		joined[d.ID] = d.Joined
	}
	for _, k := range s.Forward.Links {
		links[k.A], links[k.B] = true, true
	}
	for _, h := range s.Forward.Hosts {
		hosts[h.MAC] = true
	}
	u := &unknown{unsettled: !s.Forward.Settled}
	for _, n := range p.nodes {
		if n.kind == experiment.Guest && !hosts[n.ports[0].mac.String()] {
			u.guests = append(u.guests, n)
		}
		if n.kind != experiment.Switch {
			continue
		}
		if !joined[n.datapath()] {
			u.switches = append(u.switches, n.name)
		}
		for i, port := range n.ports {
			at := fmt.Sprintf("%s:%d", n.datapath(), ofPort(i))
			if port.peer.kind == experiment.Switch && n.index < port.peer.index && !links[at] {
				u.links = append(u.links, port.name)
			}
		}
	}
	return u
}

// datapath returns the number of a switch in OpenFlow, the same as in the addresses of its guests, as Open vSwitch
// and the controller write it.
func (n *node) datapath() string { return fmt.Sprintf("%016x", n.subnet) }

// ofPort returns the number of a port in OpenFlow: p1 is 1.
func ofPort(i int) int { return i + 1 }

func (l *Lab) controllerStatus(ctx context.Context) (*controller.Status, error) {
	return controller.ReadStatus(ctx, controllerName, l.enterController)
}

func (l *Lab) enterController(f func() error) error { return l.Enter(controllerNode, f) }

func (l *Lab) controllerEnded() error {
	return fmt.Errorf("the controller has ended: %w", cmp.Or(l.controller.err, errors.New("exit code 0, without a request to end")))
}

func (l *Lab) withControllerLog(err error) error { return withLog(err, l.claim.controllerFile("log")) }

// troubleOfController returns after a run what the controller has lost, one line each.
func (l *Lab) troubleOfController(ctx context.Context) []string {
	if !l.hasController() {
		return nil
	}
	left, err := l.unknown(ctx)
	switch {
	case err != nil:
		err = fmt.Errorf("%w; switches keep their flows, and frames that they lost are not counted", err)
	case !left.none():
		err = fmt.Errorf("the controller has lost %s", left)
	default:
		return nil
	}
	return []string{"topology.switch ovs: " + l.withControllerLog(err).Error()}
}
