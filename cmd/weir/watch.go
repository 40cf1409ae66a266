package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"weir/agent/switchd"
)

const (
	watchSample  = 250 * time.Millisecond // a cell of a queue's sparkline
	historyCells = 130                    // length of the widest sparkline
)

// watchInTerminal shows reports in a terminal until q is pressed or ctx is done.
func watchInTerminal(ctx context.Context, in io.Reader, out io.Writer, m *switchd.Meter) error {
	p := tea.NewProgram(newWatchModel(m.Read, switchd.Queues), tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	end, err := p.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		err = nil // ended on request
	}
	if w, ok := end.(*watchModel); ok {
		err = errors.Join(err, w.failed)
	}
	return err
}

// watchModel is the state of the screen.
type watchModel struct {
	read   func() (*switchd.Report, error)
	queues func() (map[int]uint32, error)

	report  *switchd.Report
	failed  error // of the first reading: there is nothing to show
	err     error // of a later reading: shown, and read again
	history map[portKey][]uint32
	reads   int

	width, height int
	selected      portKey
	top           int // first row on the screen
	sortBy        int // index in columns; at first the state, so that problems come first and are selected
	reversed      bool
}

// portKey identifies a port of all switches.
type portKey struct {
	name    string // of the switch
	port    string
	ifindex int
}

// row is a port in the table.
type row struct {
	key portKey
	*switchd.Port
}

type (
	reportMsg struct {
		report *switchd.Report
		err    error
	}
	refreshMsg struct{}
	queuesMsg  map[int]uint32
	sampleMsg  struct{}
)

func newWatchModel(read func() (*switchd.Report, error), queues func() (map[int]uint32, error)) *watchModel {
	return &watchModel{read: read, queues: queues, width: 80, height: 24, sortBy: 1, history: map[portKey][]uint32{}}
}

func (m *watchModel) Init() tea.Cmd { return tea.Batch(m.readCmd, m.sampleCmd) }

func (m *watchModel) readCmd() tea.Msg {
	r, err := m.read()
	return reportMsg{r, err}
}

func (m *watchModel) sampleCmd() tea.Msg {
	q, err := m.queues()
	if err != nil {
		q = nil // later samples are enough
	}
	return queuesMsg(q)
}

// Update processes one message.
func (m *watchModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case reportMsg:
		return m, m.take(msg)
	case refreshMsg:
		return m, m.readCmd
	case queuesMsg:
		m.sample(msg)
		return m, tea.Tick(watchSample, func(time.Time) tea.Msg { return sampleMsg{} })
	case sampleMsg:
		return m, m.sampleCmd
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	}
	m.scroll()
	return m, nil
}

func (m *watchModel) take(msg reportMsg) tea.Cmd {
	m.reads++
	wait := watchRefresh
	switch {
	case msg.err != nil && m.report == nil:
		m.failed = msg.err
		return tea.Quit
	case msg.err != nil:
		m.err = msg.err
	default:
		m.report, m.err = msg.report, nil
		m.forget()
		if m.reads == 1 {
			wait = statusPause // the second reading gives rates
		}
	}
	m.scroll()
	return tea.Tick(wait, func(time.Time) tea.Msg { return refreshMsg{} })
}

// forget drops the history of ports that no longer exist.
func (m *watchModel) forget() {
	there := map[portKey]bool{}
	for _, r := range m.rows() {
		there[r.key] = true
	}
	for k := range m.history {
		if !there[k] {
			delete(m.history, k)
		}
	}
}

// sample adds a cell to the sparkline of each port. A port of another namespace has the queue of the last report.
func (m *watchModel) sample(queues queuesMsg) {
	for _, r := range m.rows() {
		q, ok := queues[r.Ifindex]
		if !ok || r.QueueKind == "" {
			q = r.QueueBytes
		}
		h := m.history[r.key]
		m.history[r.key] = append(h[max(0, len(h)+1-historyCells):], q)
	}
}

func (m *watchModel) key(k string) tea.Cmd {
	switch k {
	case "q", "esc", "ctrl+c":
		return tea.Quit
	case "left", "h":
		m.sortBy = (m.sortBy + len(columns) - 1) % len(columns)
	case "right", "l", "s":
		m.sortBy = (m.sortBy + 1) % len(columns)
	case "r":
		m.reversed = !m.reversed
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup":
		m.move(-m.tableRows())
	case "pgdown", "space":
		m.move(m.tableRows())
	case "home", "g":
		m.move(-len(m.rows()))
	case "end", "G":
		m.move(len(m.rows()))
	}
	m.scroll()
	return nil
}

// move selects the port so many rows below.
func (m *watchModel) move(by int) {
	rows := m.sorted()
	if len(rows) == 0 {
		return
	}
	m.selected = rows[min(max(m.index(rows)+by, 0), len(rows)-1)].key
}

// index returns the row of the selected port, or the first if it is gone.
func (m *watchModel) index(rows []row) int {
	return max(0, slices.IndexFunc(rows, func(r row) bool { return r.key == m.selected }))
}

// scroll keeps the selected port on the screen.
func (m *watchModel) scroll() {
	rows, fit := m.sorted(), m.tableRows()
	at := m.index(rows)
	m.top = max(min(m.top, at, len(rows)-fit), at-fit+1, 0)
}

func (m *watchModel) rows() (out []row) {
	if m.report == nil {
		return nil
	}
	for i := range m.report.Switches {
		s := &m.report.Switches[i]
		for j := range s.Ports {
			p := &s.Ports[j]
			out = append(out, row{portKey{s.Name, p.Port, p.Ifindex}, p})
		}
	}
	return out
}

// sorted returns the rows in the order of the screen: the largest numbers, the first names or the worst states first.
func (m *watchModel) sorted() []row {
	rows := m.rows()
	slices.SortStableFunc(rows, func(a, b row) int {
		c := columns[m.sortBy].compare(a, b)
		if m.reversed {
			c = -c
		}
		return cmp.Or(c, cmp.Compare(a.key.name, b.key.name), naturally(a.Port.Port, b.Port.Port))
	})
	return rows
}

// naturally compares names with numbers in them: swp2 before swp10.
func naturally(a, b string) int {
	for a != "" && b != "" {
		x, restA := leading(a)
		y, restB := leading(b)
		if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); isDigit(x[0]) && isDigit(y[0]) && c != 0 {
			return c
		}
		if c := cmp.Compare(x, y); c != 0 {
			return c
		}
		a, b = restA, restB
	}
	return cmp.Compare(a, b)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// leading splits off the digits at the beginning of a name, or the part before the first digit.
func leading(s string) (head, rest string) {
	i := 1
	for i < len(s) && isDigit(s[i]) == isDigit(s[0]) {
		i++
	}
	return s[:i], s[i:]
}

func (k portKey) String() string { return printable(k.port) + "@" + k.name }
