package bus

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"weir/bus/weirv1"
)

// SendMarks returns marks to the agent of the host that sent the marked packets, and sets their origin. Without a connection they are
// lost.
func (a *Agent) SendMarks(to string, m *weirv1.PairMarks) error {
	if !weirv1.ValidName(to) {
		return fmt.Errorf("send marks: %q is no name of an agent", to)
	}
	a.sending.Lock()
	defer a.sending.Unlock()
	m.Origin = a.origin(&a.marks)
	b, err := weirv1.Append(a.buffer[:0], m)
	if err != nil {
		return err
	}
	a.buffer = b
	return a.publish(marksSubject(a.conn.id.Name, to), b)
}

// MarksCounts returns how many messages with marks arrived, by result: "taken", or why they were refused.
func (a *Agent) MarksCounts() map[string]uint64 { return a.marksCounts.All() }

// marksInbox takes the marks that other agents return. The subject names the agent that sent them, and the bus checks it against that
// agent's certificate: so an agent can only speak for itself.
type marksInbox struct {
	of   *Agent
	last map[string]*weirv1.Origin // by agent. Only enrolled ones can be in it
}

func (l *marksInbox) take(m *nats.Msg) {
	from, _, _ := strings.Cut(strings.TrimPrefix(m.Subject, marksPrefix), ".")
	marks, err := weirv1.DecodePairMarks(m.Data)
	if err != nil {
		l.of.marksCounts.Refuse(l.of.conn.log, "marks are refused", "malformed", "agent", from, "error", err)
		return
	}
	o, last := marks.GetOrigin(), l.last[from]
	if last.GetIncarnation() == o.GetIncarnation() && o.GetSequence() <= last.GetSequence() {
		l.of.marksCounts.Refuse(l.of.conn.log, "marks are refused", "late", "agent", from)
		return
	}
	l.last[from] = o
	l.of.marksCounts.Add("taken")
	l.of.cfg.Marks(from, marks)
}
