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
	controllerPort = 6653 // OpenFlow's (IANA)
	controllerName = "default"
	// controllerPatience is how long nothing may be found anew, while something is still missing.
	controllerPatience = 30 * time.Second
	controllerLook     = 100 * time.Millisecond
)

// process is a child of this one. When this one goes it stays, as one of the lab's control group.
type process struct {
	pid   int
	ended chan struct{}
	err   error // how it ended, once it has
}

// address is where the controller listens, in the management network.
func (p *plan) controllerAddress() netip.AddrPort {
	return netip.AddrPortFrom(p.byName[controllerNode].mgmt, controllerPort)
}

func (r *record) controllerFile(suffix string) string {
	return filepath.Join(labsDir, r.Name, "controller."+suffix)
}

// hasController reports whether the switches of this lab have one.
func (l *Lab) hasController() bool {
	o, ok := l.fabric.(ovs)
	return ok && o.controller.IsValid()
}

// startController starts the controller in its node, as a process of the lab's with a file and a log in the lab's
// directory. Where it begins anew, the log goes on.
func (l *Lab) startController() error {
	text := fmt.Sprintf("kind: Controller\nname: %s\nlisten: %s\ngeneration: %s\ntls:\n  ca: %s\n  certificate: %s\n  key: %s\n",
		controllerName, l.plan.controllerAddress(), l.claim.controllerFile("generation"),
		l.claim.certificateFile("ca.pem"), l.claim.certificateFile(controllerNode+".pem"), l.claim.certificateFile(controllerNode+".key"))
	if err := os.WriteFile(l.claim.controllerFile("yaml"), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the controller's file: %w", err)
	}
	log, err := os.OpenFile(l.claim.controllerFile("log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("write the controller's log: %w", err)
	}
	defer log.Close()
	if !l.plan.cfg.Graph.Multipath {
		l.unmet.add("all switches", "topology.routing", "single", "the controller uses all shortest paths")
	}
	cmd := exec.Command(l.controllerProgram[0], append(slices.Clone(l.controllerProgram[1:]), "-f", l.claim.controllerFile("yaml"))...)
	cmd.Stdout, cmd.Stderr = log, log
	done, err := l.claim.adopt(cmd)
	if err != nil {
		return err
	}
	defer done()
	// A controller has a machine of its own: it does not wait for the guests' programs, as switches do not.
	err = l.enterController(func() error { return preferred(cmd.Start) })
	if err != nil {
		return fmt.Errorf("start the controller: %w", err)
	}
	p := &process{pid: cmd.Process.Pid, ended: make(chan struct{})}
	go func() { p.err = cmd.Wait(); close(p.ended) }()
	l.controller = p
	return nil
}

// preferred runs start on this thread while it has the processor first, which what it starts inherits.
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

// awaitController waits until the controller has found every switch, every link and every guest, and the switches are as
// it wants them. Nothing else tells it of guests: all know each other, so none ever asks, and one that only receives
// would stay unknown.
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
			say("the controller looks for " + now)
		}
		if time.Since(found) > controllerPatience {
			return l.withControllerLog(fmt.Errorf("the controller has not found %s in %v", now, controllerPatience))
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

// unknown is what the controller does not know.
type unknown struct {
	switches, links []string
	guests          []*node
	unsettled       bool // some switch is not yet as it should be
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
		return "the switches' answer that all is as it should be"
	}
	return strings.Join(words, ", ")
}

// unknown asks the controller what it knows. While it does not answer, it knows nothing. An error is one that does not
// go away.
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
		return nil, fmt.Errorf("switches refused %d orders of the controller's", n)
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

// datapath is the number of a switch in OpenFlow, that in the addresses of its guests, as Open vSwitch and the controller
// write it.
func (n *node) datapath() string { return fmt.Sprintf("%016x", n.subnet) }

// ofPort is the number of a port in OpenFlow: p1 is 1.
func ofPort(i int) int { return i + 1 }

func (l *Lab) controllerStatus(ctx context.Context) (*controller.Status, error) {
	return controller.ReadStatus(ctx, controllerName, l.enterController)
}

func (l *Lab) enterController(f func() error) error { return l.Enter(controllerNode, f) }

func (l *Lab) controllerEnded() error {
	return fmt.Errorf("the controller has ended: %w", cmp.Or(l.controller.err, errors.New("as if it had been asked to")))
}

func (l *Lab) withControllerLog(err error) error { return withLog(err, l.claim.controllerFile("log")) }

// troubleOfController tells after a run what the controller has lost.
func (l *Lab) troubleOfController(ctx context.Context) []string {
	if !l.hasController() {
		return nil
	}
	left, err := l.unknown(ctx)
	switch {
	case err != nil:
		err = fmt.Errorf("%w; switches go on with the flows that they have, frames that they lost are not counted", err)
	case !left.none():
		err = fmt.Errorf("the controller has lost %s", left)
	default:
		return nil
	}
	return []string{"topology.switch ovs: " + l.withControllerLog(err).Error()}
}
