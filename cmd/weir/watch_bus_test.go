package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// wholeSystem is a system with a problem. The agent sends control characters, which must not reach a terminal.
func wholeSystem() *systemStatus {
	s := &systemStatus{
		Controllers: []controllerState{{Name: "c1", Version: "1.4", Up: 61, Held: map[uint32]uint64{0: 3, 1: 3}, Agents: 2, Laws: []string{"sicc"}}},
		Agents: []agentState{
			{Name: "h1", Version: "1.4", Roles: []string{"host"}, HeldBy: "c1", Term: 3, VMs: 2},
			{Name: "tor1", Version: "1.\x1b[2J4", HeldBy: "c1", Term: 3, Problems: []string{"port \"p1\" is gone\nall is well\x1b[31m"}},
		},
		Policies: []policyState{{Name: "web", State: "enforced", Hold: 3}},
	}
	s.sort()
	return s
}

// TestPrintSystem_ControlCharacters: text of an agent stays in its column; it cannot forge a line or move the cursor.
func TestPrintSystem_ControlCharacters(t *testing.T) {
	var out bytes.Buffer
	if err := printSystem(&out, wholeSystem()); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, bad := range []string{"\x1b", "\nall is well"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q is in\n%s", bad, text)
		}
	}
	if !strings.HasPrefix(text, "1 wrong\n") || !strings.Contains(text, `wrong: port "p1" is gone\nall is well\x1b[31m`) {
		t.Errorf("\n%s", text)
	}
}

// The screen has the last answer, an error of a later reading above it, and keys that scroll. An error at first ends the program.
func TestWatchSystem_Screen(t *testing.T) {
	refused := errors.New("not you")
	keys, press := io.Pipe()
	reads := 0
	m := &systemModel{read: func() (*systemStatus, error) {
		if reads++; reads == 2 {
			go func() { _, _ = press.Write([]byte("q")) }()
			return nil, refused
		}
		return wholeSystem(), nil
	}}
	var out bytes.Buffer
	program := func(m *systemModel) error {
		_, err := tea.NewProgram(m, tea.WithContext(t.Context()), tea.WithInput(keys), tea.WithOutput(&out), tea.WithWindowSize(80, 8),
			tea.WithoutSignalHandler(), tea.WithEnvironment([]string{"TERM=xterm-256color"})).Run()
		return err
	}
	if err := program(m); err != nil || !strings.Contains(ansi.Strip(out.String()), "1 wrong") {
		t.Errorf("%v: %q", err, out.String())
	}
	lines := func() []string { return strings.Split(ansi.Strip(m.View().Content), "\n") }
	if got := lines(); len(got) != 8 || !strings.HasSuffix(got[0], "no answer: not you") || got[1] != "1 wrong" || !strings.Contains(got[7], "lines 1 to 6 of 11") {
		t.Errorf("%q", got)
	}
	for _, key := range []struct {
		name, first string
		press       tea.KeyPressMsg
	}{
		{"down", "", tea.KeyPressMsg{Code: tea.KeyDown}},
		{"end", "", tea.KeyPressMsg{Code: tea.KeyEnd}},
		{"home", "1 wrong", tea.KeyPressMsg{Code: tea.KeyHome}},
	} {
		if m.Update(key.press); lines()[1] == "1 wrong" != (key.first == "1 wrong") {
			t.Errorf("after %s: %q", key.name, lines())
		}
	}
	if m.Update(tea.KeyPressMsg{Code: tea.KeyEnd}); !strings.HasPrefix(lines()[6], "web ") {
		t.Errorf("the end: %q", lines())
	}
	m = &systemModel{read: func() (*systemStatus, error) { return nil, refused }}
	if err := program(m); err != nil || !errors.Is(m.err, refused) || m.text != nil {
		t.Errorf("refused at first: %v, %v", err, m.err)
	}
}

// Without a terminal answers follow each other, with their times. A first answer that fails ends the command.
func TestWatchSystem_Plain(t *testing.T) {
	refused := errors.New("not you")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reads := 0
	read := func() (*systemStatus, error) {
		switch reads++; reads {
		case 2:
			return nil, refused
		case 3:
			stop()
		}
		return wholeSystem(), nil
	}
	var out bytes.Buffer
	if err := watchSystemPlain(ctx, &out, read, false); err != nil || strings.Count(out.String(), "1 wrong\n") != 1 || !strings.Contains(out.String(), "no answer: not you\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := watchSystemPlain(t.Context(), &out, func() (*systemStatus, error) { return nil, refused }, true); !errors.Is(err, refused) {
		t.Errorf("refused at first: %v", err)
	}
}
