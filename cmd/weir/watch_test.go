package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"golang.org/x/sys/unix"

	"weir/agent/switchd"
	"weir/cmd/weir/laws"
	"weir/datapath/testnet"
	"weir/internal/testlog"
)

var updateViews = flag.Bool("update-views", false, "write testdata/watch/*.txt anew, to be reviewed as a diff")

// watched is a report with ports in every state.
func watched() *switchd.Report {
	rates := func(rewritten, drops float64) *switchd.Rates {
		return &switchd.Rates{IntervalMs: 1000, Packets: 3 * rewritten, Rewritten: rewritten, Drops: drops}
	}
	return &switchd.Report{Switches: []switchd.Switch{{
		Name: "default", State: switchd.Degraded, Word: "not-reached", Reason: "swp10: FairQ is not reached: none of the last 8231 packets of the port",
		PID: 13163, Version: "v0.5.0", UptimeSeconds: 93784, RSSBytes: 14_200_000, CPUSeconds: 281,
		Ports: []switchd.Port{
			{
				Port: "swp1", Ifindex: 3, State: switchd.Enforced, Flows: 8, GrantBytes: 2976, TargetBytes: 25000, QueueKind: "tbf", Backlog: 26992, QueueMax: 59984,
				Packets: 34947, Rewritten: 17, Passed: map[string]uint64{"smaller": 353, "ungoverned": 34567}, Rates: rates(4123, 0),
			},
			{
				Port: "swp10", Ifindex: 12, State: switchd.Degraded, Word: "not-reached", Reason: "FairQ is not reached", Flows: 0, TargetBytes: 200000, QueueKind: "tbf", Backlog: 912345,
				Rates: rates(0, 31.4), Findings: []switchd.Finding{
					{Word: "not-reached", State: switchd.Degraded, Reason: "FairQ is not reached: none of the last 8231 packets of the port; a program that runs before it ends the chain: cil_to_netdev", Remedy: "attach it behind FairQ, or detach it (weir doctor swp10); weir switch does not move programs of others"},
				},
			},
			{Port: "swp2", Ifindex: 4, State: switchd.Off, Word: "no-device", Reason: "its device is gone", TargetBytes: 25000},
			{Port: "swp3", Ifindex: 5, State: switchd.Off, Word: "down", Reason: "the port has no carrier", TargetBytes: 25000, QueueKind: "tbf", Rates: rates(0, 0)},
			{Port: "a-port-with-a-name\x1b[31m", Ifindex: 6, State: switchd.Enforced, Flows: 123456, GrantBytes: 1448, TargetBytes: 4_000_000_000, QueueKind: "tbf", Backlog: 4_294_967_295, Rates: rates(12_345_678, 99_999)},
		},
	}}}
}

// watching is a screen of that report with sampled queues.
func watching(r *switchd.Report) *watchModel {
	m := newWatchModel(func() (*switchd.Report, error) { return r, nil }, nil)
	m.Update(reportMsg{report: r})
	for i := range uint32(40) {
		m.Update(queuesMsg{3: i * 2000, 12: 912345 * (i % 3), 4: 0, 5: 0, 6: 4_000_000_000})
	}
	return m
}

func press(m *watchModel, keys ...string) {
	codes := map[string]rune{"down": tea.KeyDown, "up": tea.KeyUp, "left": tea.KeyLeft, "right": tea.KeyRight, "end": tea.KeyEnd, "home": tea.KeyHome}
	for _, k := range keys {
		if code, ok := codes[k]; ok {
			m.Update(tea.KeyPressMsg{Code: code})
			continue
		}
		m.Update(tea.KeyPressMsg{Code: rune(k[0]), Text: k})
	}
}

// The screen is compared as text, and no line is wider than the terminal.
func TestWatch_Views(t *testing.T) {
	many := &switchd.Report{Switches: []switchd.Switch{{Name: "default", State: switchd.Enforced, PID: 1, Version: "v0.5.0", UptimeSeconds: 1}}}
	for i := range 100 {
		many.Switches[0].Ports = append(many.Switches[0].Ports, switchd.Port{Port: fmt.Sprintf("swp%d", i+1), Ifindex: i + 1, State: switchd.Enforced, Flows: uint32(i)})
	}
	two := watched()
	two.Switches = append(two.Switches, switchd.Switch{Name: "other", State: switchd.Off, Word: "stopped", Reason: "attached to no port", Ports: []switchd.Port{}})
	for name, v := range map[string]struct {
		m             *watchModel
		width, height int
		keys          []string
	}{
		"ports":      {watching(watched()), 80, 24, nil},
		"selected":   {watching(watched()), 80, 24, []string{"down", "down", "down", "down"}},
		"by-port":    {watching(watched()), 80, 24, []string{"left"}},
		"by-drops":   {watching(watched()), 80, 24, []string{"left", "left", "r"}},
		"columns-60": {watching(watched()), 60, 24, nil}, "columns-70": {watching(watched()), 70, 24, nil},
		"columns-100": {watching(watched()), 100, 24, nil}, "columns-160": {watching(watched()), 160, 24, nil},
		"columns-200": {watching(watched()), 200, 24, nil},
		"many":        {watching(many), 80, 24, []string{"end"}},
		"two":         {watching(two), 80, 24, nil},
		"none":        {watching(&switchd.Report{}), 80, 24, nil},
		"not-yet":     {newWatchModel(nil, nil), 80, 24, nil},
		"very-small":  {watching(watched()), 20, 5, nil},
	} {
		v.m.Update(tea.WindowSizeMsg{Width: v.width, Height: v.height})
		press(v.m, v.keys...)
		content := v.m.View().Content
		lines := strings.Split(content, "\n")
		if len(lines) > v.height {
			t.Errorf("%s: %d lines in a terminal of %d", name, len(lines), v.height)
		}
		for i, l := range lines {
			if w := ansi.StringWidth(l); w > v.width {
				t.Errorf("%s: line %d is %d wide, of %d: %q", name, i+1, w, v.width, ansi.Strip(l))
			}
		}
		var got strings.Builder
		for _, l := range lines {
			got.WriteString(strings.TrimRight(ansi.Strip(l), " ") + "\n")
		}
		isExpected(t, name, got.String())
	}
}

// isExpected compares with the text in testdata/watch.
func isExpected(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "watch", name+".txt")
	if *updateViews {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != got {
		t.Errorf("%s (%v), now:\n%s", name, err, got)
	}
}

// Every port shows its name, state and drops at any width of the terminal. Names get the columns that they need, and
// the sparkline gets the rest.
func TestWatch_Widths(t *testing.T) {
	for width := 40; width <= 200; width++ {
		m := watching(watched())
		m.Update(tea.WindowSizeMsg{Width: width, Height: 24})
		for _, r := range m.sorted() {
			_, drops := rateTexts(r.Port)
			found := false
			for l := range strings.Lines(m.View().Content) {
				l = strings.TrimRight(ansi.Strip(l), " \n")
				name := printable(r.Port.Port)
				name = name[:min(len(name), portLeast-1)]
				found = found || strings.HasPrefix(l, name) && strings.Contains(l, stateText(r.Port)) && strings.HasSuffix(l, " "+drops)
			}
			if !found {
				t.Fatalf("%d columns: name, state and drops of %s are not on the screen:\n%s", width, r.Port.Port, ansi.Strip(m.View().Content))
			}
		}
	}
	five := &switchd.Report{Switches: []switchd.Switch{{Name: "default", State: switchd.Enforced, Ports: []switchd.Port{{Port: "p5", State: switchd.Enforced}}}}}
	m := watching(five)
	m.Update(tea.WindowSizeMsg{Width: 160, Height: 24})
	if g := m.grid(m.sorted()); g.columns[0] != portLeast || g.line < 90 {
		t.Errorf("of 160 columns p5 has %d, and its queue's line %d", g.columns[0], g.line)
	}
}

// The report that is printed once, with every state.
func TestStatus_Text(t *testing.T) {
	var out bytes.Buffer
	if err := printStatus(&out, watched()); err != nil {
		t.Fatal(err)
	}
	isExpected(t, "printed", out.String())
}

// States and the cells of a queue have colours. Names of devices cannot send control characters to the terminal.
func TestWatch_Colours(t *testing.T) {
	content := watching(watched()).View().Content
	for _, want := range []string{paint(green, "enforced"), paint(yellow, "degraded"), paint(red, "off"), paint(dim, "down"), `a-port-wi`} {
		if !strings.Contains(content, want) {
			t.Errorf("no %q in %q", want, content)
		}
	}
	if got, want := sparkline([]uint32{0, 1, 100, 150, 151, 200, 201}, 100, 9), "  \x1b[0;32m ▁▄▆\x1b[0;33m▇█\x1b[0;31m█\x1b[0m"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	if got := ansi.Strip(sparkline([]uint32{0, 5}, 0, 3)); got != "  █" {
		t.Errorf("without a target: %q", got)
	}
}

// A selected port stays selected, and on the screen, when the order changes; if it is deleted, the first is selected.
func TestWatch_Selection(t *testing.T) {
	m := watching(watched())
	if first := m.sorted()[m.index(m.sorted())].Port; first.State != switchd.Off || first.Idle() {
		t.Errorf("at first %s is selected, which is %s: not the worst", first.Port, first.State)
	}
	press(m, "down", "down", "up", "up")
	name := m.sorted()[m.index(m.sorted())].Port.Port
	press(m, "left", "r")
	if now := m.sorted()[m.index(m.sorted())].Port.Port; now != name || name != "swp2" {
		t.Errorf("%q was selected, now %q", name, now)
	}
	r := watched()
	r.Switches[0].Ports = r.Switches[0].Ports[:1]
	m.Update(reportMsg{report: r})
	if now := m.sorted()[m.index(m.sorted())].Port.Port; now != "swp1" || len(m.history) != 1 {
		t.Errorf("of one port %q is selected; lines of %d ports are kept", now, len(m.history))
	}
}

// The whole program draws and ends with q. An error at the first reading ends it; a later error is shown.
func TestWatch_Runs(t *testing.T) {
	screen := func(m *watchModel, input io.Reader) (string, error) {
		var out bytes.Buffer
		_, err := tea.NewProgram(m, tea.WithContext(t.Context()), tea.WithInput(input), tea.WithOutput(&out),
			tea.WithWindowSize(80, 24), tea.WithoutSignalHandler(), tea.WithEnvironment([]string{"TERM=xterm-256color"})).Run()
		return ansi.Strip(out.String()), err
	}
	keys, press := io.Pipe()
	m := newWatchModel(nil, func() (map[int]uint32, error) { return map[int]uint32{3: 1000}, nil })
	reads := 0
	m.read = func() (*switchd.Report, error) {
		if reads++; reads == 3 {
			go func() { _, _ = press.Write([]byte("q")) }()
		}
		return watched(), nil
	}
	if out, err := screen(m, keys); err != nil || !strings.Contains(out, "swp1") {
		t.Errorf("%v: %q", err, out)
	}
	refused := errors.New("not you")
	m = newWatchModel(func() (*switchd.Report, error) { return nil, refused }, func() (map[int]uint32, error) { return nil, refused })
	if _, err := screen(m, keys); err != nil || !errors.Is(m.failed, refused) {
		t.Errorf("cannot be read at first: %v, %v", err, m.failed)
	}
	m = watching(watched())
	m.Update(reportMsg{err: refused})
	if text := ansi.Strip(m.View().Content); !strings.Contains(text, "cannot read: not you") || !strings.Contains(text, "swp1") {
		t.Errorf("cannot be read later:\n%s", text)
	}
}

// terminal returns both ends of a terminal of 80 columns.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = errors.Join(unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0), unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}))
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// In a terminal the process draws a screen; q ends it with exit code 0 and restores the former screen.
func TestWatch_InTerminal(t *testing.T) {
	master, slave := terminal(t)
	cmd := exec.Command("weir", "status", "--watch", "--name", "nobody-has-this-name")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close()
	var screen testlog.Log
	go func() { _, _ = io.Copy(&screen, master) }()
	testnet.Until(t, "the screen is drawn", func() bool { return strings.Contains(ansi.Strip(screen.String()), "q quit") })
	if _, err := master.WriteString("q"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v:\n%s", err, ansi.Strip(screen.String()))
	}
	testnet.Until(t, "the other screen is left", func() bool { return strings.Contains(screen.String(), "\x1b[?1049l") })
	if !strings.Contains(screen.String(), "\x1b[?1049h") || !strings.Contains(ansi.Strip(screen.String()), "no switch") {
		t.Errorf("%q", screen.String())
	}
}

// Without a terminal, reports follow each other until the context is done.
func TestWatch_Plain(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out endAfter
	out.lines, out.end = 6, cancel
	meter, err := laws.Switch().NewMeter("nobody-has-this-name")
	if err != nil {
		t.Fatal(err)
	}
	if err := watchPlain(ctx, &out, meter, false); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), noSwitch); n != 2 {
		t.Errorf("%d reports:\n%s", n, out.String())
	}
}

// endAfter calls end after so many written lines.
type endAfter struct {
	bytes.Buffer
	lines int
	end   func()
}

func (w *endAfter) Write(b []byte) (int, error) {
	if w.lines -= bytes.Count(b, []byte("\n")); w.lines <= 0 {
		w.end()
	}
	return w.Buffer.Write(b)
}

func TestShort(t *testing.T) {
	for n, want := range map[uint64]string{0: "0B", 7: "7B", 999: "999B", 1000: "1KB", 2976: "2.98KB", 26992: "27KB", 999_499: "999KB", 999_500: "1MB", 4_294_967_295: "4.29GB"} {
		if got := shortBytes(n); got != want {
			t.Errorf("%d: %s, not %s", n, got, want)
		}
	}
	for f, want := range map[float64]string{0: "0", 0.4: "0", 31.4: "31", 4123: "4.12k", 12_345_678: "12.3M"} {
		if got := shortNumber(f); got != want {
			t.Errorf("%g: %s, not %s", f, got, want)
		}
	}
	for f, want := range map[float64]string{0: "0", 0.4: "0.4", 31.42: "31.4", 999: "999", 1234: "1.23k"} {
		if got := perSecond(f); got != want {
			t.Errorf("%g a second: %s, not %s", f, got, want)
		}
	}
	for _, o := range [][2]string{{"swp2", "swp10"}, {"eth0", "swp1"}, {"swp1", "swp1s0"}, {"a", "b"}, {"a9b", "a10"}} {
		if naturally(o[0], o[1]) >= 0 || naturally(o[1], o[0]) <= 0 {
			t.Errorf("%s does not come before %s", o[0], o[1])
		}
	}
}
