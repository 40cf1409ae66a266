package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"weir/experiment"
	"weir/law"
)

// progress tells a person how the runs get on: one line that is rewritten on a terminal, one line
// a run elsewhere.
type progress struct {
	w        io.Writer
	terminal bool
	runs, n  int
	started  time.Time
	what     string
	shown    time.Time
}

// redraw is the shortest time between two drawings of the line.
const redraw = 200 * time.Millisecond

func newProgress(w io.Writer, runs int) *progress {
	p := &progress{w: w, runs: runs, started: time.Now()}
	if f, ok := w.(*os.File); ok {
		p.terminal = term.IsTerminal(int(f.Fd()))
	}
	return p
}

func (p *progress) begin(r *experiment.Run) {
	p.n++
	p.what = describe(r)
	if !p.terminal {
		fmt.Fprintf(p.w, "run %d of %d: %s (%v of traffic at most)\n", p.n, p.runs, p.what, r.Config.Duration)
	}
}

// Phase shows what is being done.
func (p *progress) Phase(text string) { p.draw(text, true) }

// At shows how far the traffic is.
func (p *progress) At(now, total law.Duration, flowsDone int) {
	const width = 20
	filled := 0
	if total > 0 {
		filled = int(min(width, width*int64(now)/int64(total)))
	}
	bar := strings.Repeat("=", filled) + strings.Repeat(" ", width-filled)
	p.draw(fmt.Sprintf("[%s] %.0f of %.0f s, %d flows done", bar, now.Std().Seconds(), total.Std().Seconds(), flowsDone), false)
}

func (p *progress) draw(text string, always bool) {
	if !p.terminal || (!always && time.Since(p.shown) < redraw) {
		return
	}
	p.shown = time.Now()
	line := fmt.Sprintf("%d/%d %s: %s", p.n, p.runs, p.what, text)
	if left := p.left(); left > 0 {
		line += fmt.Sprintf(" (about %v left)", left)
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", line)
}

// left extrapolates from the runs that are done.
func (p *progress) left() time.Duration {
	if p.n < 2 {
		return 0
	}
	each := time.Since(p.started) / time.Duration(p.n)
	return (each * time.Duration(p.runs-p.n)).Round(time.Second)
}

func (p *progress) close() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
