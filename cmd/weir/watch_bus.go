package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// watchSystem shows the whole system in a terminal until q is pressed or ctx is done.
func watchSystem(ctx context.Context, in io.Reader, out io.Writer, read func() (*systemStatus, error)) error {
	p := tea.NewProgram(&systemModel{read: read}, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	end, err := p.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		err = nil // ended on request
	}
	if m, ok := end.(*systemModel); ok && m.text == nil {
		err = errors.Join(err, m.err) // nothing was shown
	}
	return err
}

// watchSystemPlain prints the whole system each second until ctx is done.
func watchSystemPlain(ctx context.Context, w io.Writer, read func() (*systemStatus, error), asJSON bool) error {
	s, err := read()
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := writeAt(w, s, err, asJSON); err != nil {
			return err
		}
		if pause(ctx, watchRefresh) {
			s, err = read()
		}
	}
	return nil
}

// writeAt writes an answer with its time, or why there is none. JSON has answers only, one a line.
func writeAt(w io.Writer, s *systemStatus, failed error, asJSON bool) error {
	if asJSON && failed == nil {
		return writeSystem(w, s, true)
	}
	if asJSON { // the next answer may come
		return nil
	}
	fmt.Fprintln(w, time.Now().Format(time.TimeOnly))
	if failed != nil {
		_, err := fmt.Fprintln(w, cannotRead(failed))
		return err
	}
	if err := writeSystem(w, s, false); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

// systemModel is the state of the screen.
type systemModel struct {
	read func() (*systemStatus, error)

	text          []string // lines of the last answer
	at            time.Time
	err           error // of the last reading; shown above the last answer
	width, height int
	top           int // first line on the screen
}

type systemMsg struct {
	status *systemStatus
	err    error
	at     time.Time
}

func (m *systemModel) Init() tea.Cmd { return m.readCmd }

func (m *systemModel) readCmd() tea.Msg {
	s, err := m.read()
	return systemMsg{s, err, time.Now()}
}

// Update processes one message.
func (m *systemModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case systemMsg:
		return m, m.take(msg)
	case refreshMsg:
		return m, m.readCmd
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "esc", "ctrl+c":
			return m, tea.Quit
		case "up", "k":
			m.top--
		case "down", "j":
			m.top++
		case "pgup":
			m.top -= m.rows()
		case "pgdown", "space":
			m.top += m.rows()
		case "home", "g":
			m.top = 0
		case "end", "G":
			m.top = len(m.text)
		}
	}
	m.top = max(0, min(m.top, len(m.text)-m.rows()))
	return m, nil
}

func (m *systemModel) take(msg systemMsg) tea.Cmd {
	m.err = msg.err
	if msg.err == nil {
		var text bytes.Buffer
		m.err = printSystem(&text, msg.status)
		m.text, m.at = strings.Split(strings.TrimRight(text.String(), "\n"), "\n"), msg.at
	}
	if m.text == nil {
		return tea.Quit
	}
	return tea.Tick(watchRefresh, func(time.Time) tea.Msg { return refreshMsg{} })
}

// rows is how many lines of the answer fit between the first line and the last.
func (m *systemModel) rows() int { return max(m.height-2, 1) }

// View draws the last answer, its time, and the keys.
func (m *systemModel) View() tea.View {
	head := "asking controllers and agents"
	if m.text != nil {
		head = m.at.Format(time.TimeOnly)
	}
	if m.err != nil {
		head += "  " + cannotRead(m.err)
	}
	shown := m.text[min(m.top, len(m.text)):min(m.top+m.rows(), len(m.text))]
	lines := append([]string{head}, shown...)
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	foot := "q quit"
	if len(m.text) > m.rows() {
		foot += fmt.Sprintf("  up and down scroll: lines %d to %d of %d", m.top+1, m.top+len(shown), len(m.text))
	}
	lines = append(lines, foot)
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], m.width, "…")
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen = true
	v.WindowTitle = "weir status"
	return v
}

// cannotRead returns the text for a reading that failed.
func cannotRead(err error) string { return "no answer: " + printable(err.Error()) }
