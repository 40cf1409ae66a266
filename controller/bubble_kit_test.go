package controller

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/openflow"
	"weir/openflow/channel"
)

// bubble is a few controllers with one generation file, and switches that connect to all of them, on a clock of their
// own: it goes on when all of them wait. Their connections are pipes.
type bubble struct {
	t        *testing.T
	ctx      context.Context // of all that runs
	dir      string
	doors    map[string]*door
	roles    []*role
	running  sync.WaitGroup
	switches sync.WaitGroup
}

// inBubble runs a test with a fake clock. All goroutines have ended when it returns.
func inBubble(t *testing.T, test func(b *bubble)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &bubble{t: t, ctx: ctx, dir: dir, doors: map[string]*door{}}
		defer func() {
			cancel()
			b.running.Wait()
			b.switches.Wait()
		}()
		test(b)
	})
}

// door is where switches connect to one controller. It listens during its terms.
type door struct {
	mu   sync.Mutex
	open *pipes
}

func (d *door) listen(string) (net.Listener, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
	return d.open, nil
}

// dial returns the switch's end of a new connection; nil: nobody listens.
func (d *door) dial() net.Conn {
	d.mu.Lock()
	l := d.open
	d.mu.Unlock()
	if l == nil {
		return nil
	}
	theirs, ours := net.Pipe()
	select {
	case l.accept <- ours:
		return theirs
	case <-l.closed:
		return nil
	}
}

// pipes is a listener whose connections are pipes.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case nc := <-p.accept:
		return nc, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (*pipes) Addr() net.Addr { return &net.UnixAddr{} }

// controller starts one. beforeDraw may be nil.
func (b *bubble) controller(name string, beforeDraw func(), laws ...Law) *role {
	c := defaultFile().config()
	c.Name, c.Generation, c.beforeDraw = name, filepath.Join(b.dir, "generation"), beforeDraw
	c.Laws = laws
	b.doors[name] = new(door)
	r := &role{cfg: c, log: slog.New(slog.NewTextHandler(b.t.Output(), nil)).With("controller", name), begun: time.Now(),
		store: &channel.GenerationFile{Path: c.Generation}, listen: b.doors[name].listen}
	b.roles = append(b.roles, r)
	b.running.Go(func() {
		if err := r.terms(b.ctx); err != nil {
			b.t.Errorf("controller %s: %v", name, err)
		}
	})
	return r
}

// connect has a switch connect to a controller, again after a pause whenever the connection ends.
func (b *bubble) connect(m model, to string, pause time.Duration) {
	door := b.doors[to]
	b.switches.Go(func() {
		for b.ctx.Err() == nil {
			if nc := door.dial(); nc != nil {
				_ = newRemote(nc).be(m)
				_ = nc.Close()
			}
			select {
			case <-b.ctx.Done():
			case <-time.After(pause):
			}
		}
	})
}

// until lets time pass until the condition is true.
func (b *bubble) until(what string, condition func() bool) {
	b.t.Helper()
	const limit = 5 * time.Minute // of the bubble's clock
	for begun := time.Now(); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > limit {
			for _, r := range b.roles {
				b.t.Logf("controller %s: %+v", r.cfg.Name, r.status(b.ctx))
			}
			b.t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// active returns the one active controller; nil: none or several are active.
func (b *bubble) active() (active *role) {
	for _, r := range b.roles {
		if r.term.Load() == nil {
			continue
		}
		if active != nil {
			return nil
		}
		active = r
	}
	return active
}

// serves reports whether exactly one controller is active, its id is that in the file, and it has so many switches.
func (b *bubble) serves(switches int) bool {
	r := b.active()
	if r == nil {
		return false
	}
	s := r.status(b.ctx)
	if s == nil || s.Active != "" || r.store.Check(s.Generation) != nil {
		return false
	}
	joined := 0
	for _, d := range s.Forward.Switches {
		if d.Joined {
			joined++
		}
	}
	return joined == switches
}

// elector is a switch's memory of generation ids, as the specification has it (6.3.6).
type elector struct {
	mu         sync.Mutex
	generation uint64
	has        bool
	masters    int // requests that were granted
}

func (e *elector) role(q *openflow.RoleRequest) openflow.Message {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case q.Role == openflow.RoleNoChange && !e.has:
		return &openflow.RoleReply{Role: openflow.RoleEqual, GenerationID: ^uint64(0)}
	case q.Role == openflow.RoleNoChange:
		return &openflow.RoleReply{Role: openflow.RoleMaster, GenerationID: e.generation}
	case e.has && int64(q.GenerationID-e.generation) < 0:
		return refusedRole(openflow.CodeRoleStale)
	}
	e.generation, e.has = q.GenerationID, true
	e.masters++
	return &openflow.RoleReply{Role: q.Role, GenerationID: q.GenerationID}
}

func refusedRole(code uint16) openflow.Message {
	return &openflow.ErrorMessage{ErrorType: openflow.ErrorRoleRequestFailed, Code: code}
}

// write puts a generation id into the file, as another controller would.
func (b *bubble) write(generation uint64) {
	if err := (&channel.GenerationFile{Path: filepath.Join(b.dir, "generation")}).Advance(generation); err != nil {
		b.t.Error(err)
	}
}

// lose removes the file.
func (b *bubble) lose() {
	if err := os.Remove(filepath.Join(b.dir, "generation")); err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Error(err)
	}
}
