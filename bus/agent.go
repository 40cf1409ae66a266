package bus

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"weir/bus/lease"
	"weir/bus/pki"
	"weir/bus/weirv1"
	"weir/internal/counts"
	"weir/law"
)

// AgentConfig configures an agent's side of the bus.
type AgentConfig struct {
	Client  ClientConfig
	Buckets int // of the whole system, the same for all agents and controllers
	// Terms stores the highest term that the agent has seen. It survives a restart of the agent.
	Terms TermFile
	// Clock is the machine's monotonic clock, which continues when the agent restarts.
	Clock func() time.Duration
	// Obey carries out grants. It is called for one command after the other.
	Obey func(cause *weirv1.Command, grants []law.Grant)
	// Announced is called when a controller announces its term: it wants the agent's whole state. It must return soon. nil: not.
	Announced func()
	// Marks takes the marks that another agent returns. It is called for one message after the other. nil: they are not subscribed to.
	Marks func(from string, marks *weirv1.PairMarks)

	incarnation uint64 // for tests; 0: random
}

// Agent is an agent on the bus.
type Agent struct {
	conn        *Conn
	cfg         AgentConfig
	bucket      uint32
	incarnation uint64

	obeying sync.Mutex // one command after the other, of the bus and of frames

	sending   sync.Mutex
	telemetry uint64 // the last sequence numbers
	events    uint64
	marks     uint64
	buffer    []byte // for the next message; the connection copies it

	mu     sync.Mutex
	fence  *lease.Fence
	counts counts.Counts // of commands, by result

	marksCounts counts.Counts // of messages with marks, by result
}

// NewAgent connects an agent. A certificate for agent/NAME is required.
func NewAgent(cfg AgentConfig) (*Agent, error) {
	a := &Agent{cfg: cfg, incarnation: cfg.incarnation}
	if a.incarnation == 0 {
		a.incarnation = nonce()
	}
	seen, err := cfg.Terms.Load()
	if err != nil {
		return nil, err
	}
	if a.conn, err = Dial(cfg.Client); err != nil {
		return nil, err
	}
	name := a.conn.Identity().Name
	a.bucket = uint32(lease.Bucket(name, cfg.Buckets))
	a.fence = lease.NewFence(a.bucket, a.incarnation, seen, cfg.Terms.Save)
	err = a.conn.role(pki.Agent)
	if err == nil {
		err = a.conn.listen(commandPrefix+name, 1024, a.command)
	}
	if err == nil && cfg.Marks != nil {
		l := marksInbox{of: a, last: map[string]*weirv1.Origin{}}
		err = a.conn.listen(marksSubject("*", name), 1024, l.take)
	}
	if err != nil {
		a.conn.Close()
		return nil, err
	}
	a.conn.settle()
	return a, nil
}

// Conn returns the connection.
func (a *Agent) Conn() *Conn { return a.conn }

// Bucket returns the bucket of the agent.
func (a *Agent) Bucket() uint32 { return a.bucket }

// Close disconnects the agent.
func (a *Agent) Close() { a.conn.Close() }

// origin returns the origin of the next report.
func (a *Agent) origin(sequence *uint64) *weirv1.Origin {
	*sequence++
	return &weirv1.Origin{Incarnation: a.incarnation, Sequence: *sequence, StampNs: uint64(a.cfg.Clock())}
}

// SendTelemetry sends a report and sets its origin. Without a connection the report is lost, and the next one replaces it.
func (a *Agent) SendTelemetry(t *weirv1.Telemetry) error {
	a.sending.Lock()
	defer a.sending.Unlock()
	t.Origin = a.origin(&a.telemetry)
	b, err := weirv1.Append(a.buffer[:0], t)
	if err != nil {
		return err
	}
	a.buffer = b
	return a.publish(telemetryPrefix+a.conn.id.Name, b)
}

// SendEvents sends events and sets their origin.
func (a *Agent) SendEvents(e *weirv1.Events) error {
	a.sending.Lock()
	defer a.sending.Unlock()
	e.Origin = a.origin(&a.events)
	b, err := weirv1.Append(a.buffer[:0], e)
	if err != nil {
		return err
	}
	a.buffer = b
	return a.publish(eventsPrefix+a.conn.id.Name, b)
}

func (a *Agent) publish(subject string, b []byte) error {
	err := a.conn.nc.Publish(subject, b)
	if err != nil {
		return fmt.Errorf("send a report: %w", err)
	}
	return nil
}

// State returns what the agent obeys, for its events. The caller adds its live grants.
func (a *Agent) State(version string) *weirv1.AgentState {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &weirv1.AgentState{Version: version}
	if seen := a.fence.Seen(); seen.Term > 0 {
		s.Terms = []*weirv1.SeenTerm{{Bucket: a.bucket, Term: seen.Term, Controller: controllerOf(seen.Holder)}}
	}
	return s
}

// Counts returns how many commands arrived, by result: "obeyed", or why they were refused.
func (a *Agent) Counts() map[string]uint64 { return a.counts.All() }

func (a *Agent) command(m *nats.Msg) { a.take(m.Data, nil) }

// TakeFrame takes a command that came in a frame with a valid tag (bus/inband). It may only have grants; header: the frame's header has
// the only one, and the command none.
func (a *Agent) TakeFrame(command []byte, header *law.Grant) {
	a.take(command, func(c *weirv1.Command) error {
		switch {
		case c.GetPlan() != nil || c.GetHostPlan() != nil || (len(c.GetGrants()) > 0) == (header != nil):
			return errors.New("a frame without grants, with more than its header has, or with a plan")
		case header == nil:
			return nil
		case c.GetIncarnation() == 0:
			return errors.New("a frame that announces a term")
		}
		c.Grants = []*weirv1.Grant{weirv1.NewGrant(*header)}
		return nil
	})
}

// take takes a command. check says what it may have; nil: anything.
func (a *Agent) take(command []byte, check func(*weirv1.Command) error) {
	a.obeying.Lock()
	defer a.obeying.Unlock()
	c, err := weirv1.DecodeCommand(command)
	if err == nil && check != nil {
		err = check(c)
	}
	if err != nil {
		a.refuse("malformed", err)
		return
	}
	o := HeaderOf(c)
	a.mu.Lock()
	before := a.fence.Seen()
	why := a.fence.Check(a.cfg.Clock(), o)
	after := a.fence.Seen()
	a.mu.Unlock()
	if before != after {
		a.conn.log.Info("a new term", "bucket", a.bucket, "term", after.Term, "controller", after.Holder.Name)
	}
	if why != lease.Obeyed {
		a.refuse(string(why), errors.New("the fence refuses it"))
		return
	}
	a.counts.Add("obeyed")
	if o.Announces {
		if a.cfg.Announced != nil {
			a.cfg.Announced()
		}
		return
	}
	grants := make([]law.Grant, len(c.GetGrants()))
	for i, g := range c.GetGrants() {
		grants[i] = g.Law()
	}
	a.cfg.Obey(c, grants)
}

func (a *Agent) refuse(reason string, err error) {
	a.counts.Refuse(a.conn.log, "a command is refused", reason, "error", err)
}

func holderOf(c *weirv1.Controller) lease.Holder {
	return lease.Holder{Name: c.GetName(), Run: c.GetRun()}
}

func controllerOf(h lease.Holder) *weirv1.Controller {
	return &weirv1.Controller{Name: h.Name, Run: h.Run}
}
