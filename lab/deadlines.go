package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"weir/deadline"
	"weir/experiment"
	"weir/law"
)

// A law that asks for deadlines gets those that the traffic's programs declare: to the agent of their host, by the socket of their VM.

// declareLimit is how long a program waits for its agent.
const declareLimit = 2 * time.Second

// programs are the programs of the guests that declare deadlines.
type programs struct {
	mu      sync.Mutex
	sockets map[string]string // by guest
	clients map[string]*deadline.Client
}

// declares returns the section of a host's file about deadlines, and notes the sockets of its guests.
func (c *controlled) declares(spec *law.Spec, n *node) string {
	if !slices.Contains(spec.Signals, law.Deadline) {
		return ""
	}
	dir := c.dir("d", fmt.Sprint(n.index)) // the path of a socket has few bytes
	if c.programs == nil {
		c.programs = &programs{sockets: map[string]string{}, clients: map[string]*deadline.Client{}}
	}
	for _, p := range n.ports {
		if p.peer.kind == experiment.Guest {
			c.programs.sockets[p.peer.name] = filepath.Join(dir, fmt.Sprint(vmOf(p.peer)), "deadline.sock")
			if err := linkSocket(c.dir(socketsDir, p.peer.name), c.programs.sockets[p.peer.name]); err != nil {
				c.lab.unmet.add(p.peer.name, "deadlines", "the socket for programs of weir lab exec", err.Error())
			}
		}
	}
	return fmt.Sprintf("  deadlines: {sockets: %q}\n", dir)
}

// socketsDir has a link for each guest to the socket of its agent, for `weir lab exec`.
const socketsDir = "s"

func linkSocket(at, to string) error {
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		return err
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink(to, at)
}

// deadlineEnvironment returns the variable with which clients of package deadline and weir_deadline find the socket of a guest's agent, if a
// law of the lab takes deadlines.
func (r *record) deadlineEnvironment(node string) []string {
	at := filepath.Join(labsDir, r.Name, agentsDir, socketsDir, node)
	if _, err := os.Lstat(at); err != nil {
		return nil
	}
	return []string{"WEIR_DEADLINE_SOCKET=" + at}
}

// declare declares a message as a program of a guest does.
func (p *programs) declare(guest string, d deadline.Declaration) error {
	p.mu.Lock()
	client := p.clients[guest]
	if client == nil {
		client = deadline.New(p.sockets[guest])
		p.clients[guest] = client
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), declareLimit)
	defer cancel()
	_, err := client.Declare(ctx, d)
	return err
}

func (p *programs) close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.clients {
		c.Close()
	}
}

// declare returns what the traffic's programs declare deadlines with; nil: no law of this run asks for them.
func (l *Lab) declare() func(guest string, d deadline.Declaration) error {
	for _, at := range l.laws {
		of := at.Attached
		if r, is := of.(*repaired); is {
			of = r.Attached
		}
		if c, is := of.(*controlled); is && c.programs != nil {
			return c.programs.declare
		}
	}
	return nil
}
