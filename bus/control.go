package bus

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/time/rate"

	"weir/bus/pki"
	"weir/bus/weirv1"
	"weir/internal/counts"
)

const (
	maxAgents     = MaxConnections   // that a controller knows
	agentMessages = 4096             // of all agents that wait for this process; more are lost
	forgetAfter   = 10 * time.Minute // of silence an agent is forgotten, if there are maxAgents
	forgetEvery   = time.Minute      // is the least time between two looks for such agents
)

// Inbox receives what agents send to a controller. Telemetry waits in one place per agent: a newer report replaces one that was
// not read yet. Events wait in a queue. An agent that sends more than its share
// loses its own messages. Only if messages come faster than this process reads them, others' are lost, too: the next report replaces them.
type Inbox struct {
	log     *slog.Logger
	counts  counts.Counts // of dropped messages
	decoder weirv1.TelemetryDecoder

	mu     sync.Mutex
	agents map[string]*sender
	forgot time.Time // when silent agents were looked for
	ready  []*sender // those with telemetry that is not read
	came   time.Time // the message that Next returned last
	wake   chan struct{}
}

// sender is what arrived from an agent.
type sender struct {
	name   string
	limit  *rate.Limiter // messages
	bytes  *rate.Limiter
	newest []byte
	came   time.Time // newest
	queued bool
	heard  time.Time
}

func newInbox(log *slog.Logger, wake chan struct{}) *Inbox {
	if wake == nil {
		wake = make(chan struct{}, 1)
	}
	return &Inbox{log: log, agents: map[string]*sender{}, wake: wake}
}

// Telemetry returns a channel that gets a value when Next has something.
func (b *Inbox) Telemetry() <-chan struct{} { return b.wake }

// Next returns the newest report of an agent that has one, agents in the order in which reports arrived; ok is false if there is none.
// The report is valid until the next call, but its origin may be kept. Only one goroutine may call it.
func (b *Inbox) Next() (agent string, t *weirv1.Telemetry, ok bool) {
	for {
		b.mu.Lock()
		if len(b.ready) == 0 {
			b.mu.Unlock()
			return "", nil, false
		}
		s := b.ready[0]
		b.ready = b.ready[1:]
		data := s.newest
		s.newest, s.queued, b.came = nil, false, s.came
		b.mu.Unlock()
		t, err := b.decoder.Decode(data)
		if err == nil {
			return s.name, t, true
		}
		b.refuse(s.name, "malformed", err)
	}
}

// Came returns when the message arrived that Next returned last.
func (b *Inbox) Came() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.came
}

// Counts returns how many messages were dropped, by reason: replaced, rate, malformed, subject,
// agents, heartbeat.
func (b *Inbox) Counts() map[string]uint64 { return b.counts.All() }

func (b *Inbox) refuse(agent, reason string, err error) {
	b.counts.Refuse(b.log, "a message is dropped", reason, "agent", agent, "error", err)
}

// accept returns the sender of a message, unless it sent too much.
func (b *Inbox) accept(m *nats.Msg, prefix string) *sender {
	name := nameIn(m.Subject, prefix)
	if !weirv1.ValidName(name) {
		b.refuse("", "subject", fmt.Errorf("the subject %q has no agent's name", m.Subject))
		return nil
	}
	now := time.Now()
	b.mu.Lock()
	s := b.agents[name]
	if s == nil && len(b.agents) >= maxAgents {
		b.forget(now)
	}
	if s == nil && len(b.agents) < maxAgents {
		s = &sender{name: name, limit: rate.NewLimiter(MaxMessages, MaxMessages), bytes: rate.NewLimiter(MaxBytes, MaxBytes)}
		b.agents[name] = s
	}
	if s != nil {
		s.heard = now
	}
	b.mu.Unlock()
	switch {
	case s == nil:
		b.refuse(name, "agents", fmt.Errorf("more than %d agents", maxAgents))
		return nil
	case !s.limit.Allow() || !s.bytes.AllowN(now, len(m.Data)):
		b.refuse(name, "rate", fmt.Errorf("more than %d messages or %d bytes a second", MaxMessages, MaxBytes))
		return nil
	}
	return s
}

// forget removes agents that have been silent for long. The caller holds mu.
func (b *Inbox) forget(now time.Time) {
	if now.Sub(b.forgot) < forgetEvery {
		return
	}
	b.forgot = now
	maps.DeleteFunc(b.agents, func(_ string, s *sender) bool { return !s.queued && now.Sub(s.heard) >= forgetAfter })
}

func (b *Inbox) telemetry(m *nats.Msg) {
	s := b.accept(m, telemetryPrefix)
	if s == nil {
		return
	}
	b.mu.Lock()
	if s.newest != nil {
		b.counts.Add("replaced")
	}
	s.newest, s.came = m.Data, time.Now()
	if !s.queued {
		s.queued = true
		b.ready = append(b.ready, s)
	}
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Control is a controller on the bus.
type Control struct {
	conn  *Conn
	inbox *Inbox
}

// ControlConfig configures a controller's side of the bus.
type ControlConfig struct {
	Client ClientConfig
	// Events gets the events of an agent, one message after the other. It must return soon.
	Events func(agent string, e *weirv1.Events)
	// Wake gets a value when Inbox.Next has something. It has a buffer of one. nil: Inbox.Telemetry alone.
	Wake chan struct{}
	// Heartbeat gets other controllers' heartbeats.
	Heartbeat func(h *weirv1.Heartbeat)
}

// NewControl connects a controller. A certificate for controller/NAME is required.
func NewControl(cfg ControlConfig) (*Control, error) {
	conn, err := Dial(cfg.Client)
	if err != nil {
		return nil, err
	}
	c := &Control{conn: conn}
	c.inbox = newInbox(conn.log, cfg.Wake)
	events := func(m *nats.Msg) {
		s := c.inbox.accept(m, eventsPrefix)
		if s == nil {
			return
		}
		e, err := weirv1.DecodeEvents(m.Data)
		if err != nil {
			c.inbox.refuse(s.name, "malformed", err)
			return
		}
		cfg.Events(s.name, e)
	}
	heartbeat := func(m *nats.Msg) {
		h, err := weirv1.DecodeHeartbeat(m.Data)
		if name := nameIn(m.Subject, controlPrefix); err == nil && name != h.GetController().GetName() {
			err = fmt.Errorf("the heartbeat of %s on the subject of %s", h.GetController().GetName(), name)
		}
		if err != nil {
			c.inbox.refuse("", "heartbeat", err)
			return
		}
		cfg.Heartbeat(h)
	}
	err = errors.Join(conn.role(pki.Controller),
		conn.listenInOrder(agentMessages, func(m *nats.Msg) { // arrivals of an interval come before its telemetry, which decides
			if strings.HasPrefix(m.Subject, eventsPrefix) {
				events(m)
			} else {
				c.inbox.telemetry(m)
			}
		}, telemetryPrefix+"*", eventsPrefix+"*"),
		conn.listen(controlPrefix+"*", 1024, heartbeat))
	if err != nil {
		conn.Close()
		return nil, err
	}
	conn.settle()
	return c, nil
}

// Conn returns the connection.
func (c *Control) Conn() *Conn { return c.conn }

// Inbox returns what agents sent.
func (c *Control) Inbox() *Inbox { return c.inbox }

// Close disconnects the controller.
func (c *Control) Close() { c.conn.Close() }

// Command sends a command to an agent.
func (c *Control) Command(agent string, m *weirv1.Command) error {
	if !weirv1.ValidName(agent) {
		return fmt.Errorf("send a command: %q is no agent's name", agent)
	}
	b, err := weirv1.Encode(m)
	if err != nil {
		return fmt.Errorf("send a command to %s: %w", agent, err)
	}
	return c.conn.nc.Publish(commandPrefix+agent, b)
}

// Heartbeat sends this controller's heartbeat.
func (c *Control) Heartbeat(h *weirv1.Heartbeat) error {
	b, err := weirv1.Encode(h)
	if err != nil {
		return fmt.Errorf("send a heartbeat: %w", err)
	}
	return c.conn.nc.Publish(controlPrefix+c.conn.id.Name, b)
}
