package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"weir/experiment"
	"weir/law"
)

// progress tells a person how the runs get on: one line that is rewritten on a terminal, one line
// a run elsewhere. Several runs may be under way.
type progress struct {
	w        io.Writer
	terminal bool

	mu       sync.Mutex
	estimate estimate
	runs, n  int // to do, and begun
	before   int // kept from earlier
	running  map[*experiment.Run]begun
	shown    time.Time
}

// begun is a run under way.
type begun struct {
	n     int // how many had begun with it
	since time.Time
}

// runProgress is the experiment.Progress of one run.
type runProgress struct {
	*progress
	run *experiment.Run
}

func (p *progress) of(r *experiment.Run) experiment.Progress { return runProgress{p, r} }

// redraw is the shortest time between two drawings of the line.
const redraw = 200 * time.Millisecond

func newProgress(w io.Writer, planned []*experiment.Run) *progress {
	return &progress{w: w, terminal: isTerminal(w), estimate: newEstimate(planned), running: map[*experiment.Run]begun{}}
}

func isTerminal(w io.Writer) bool {
	if c, ok := w.(*console); ok {
		w = c.w
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// console is where several experiments write to at a time, each a line at once.
type console struct {
	mu sync.Mutex
	w  io.Writer
}

func (c *console) Write(line []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.w.Write(line)
}

// clearing gives a writer of whole lines that stay, while the line of progress may stand on the same terminal.
func clearing(w io.Writer) io.Writer {
	if !isTerminal(w) {
		return w
	}
	return clearer{w}
}

type clearer struct{ w io.Writer }

func (c clearer) Write(line []byte) (int, error) {
	if _, err := c.w.Write([]byte(clearLine)); err != nil {
		return 0, err
	}
	return c.w.Write(line)
}

// clearLine makes a terminal forget the line of progress.
const clearLine = "\r\x1b[K"

// kept tells of a run that was finished earlier, and took so long.
func (p *progress) kept(r *experiment.Run, took time.Duration) {
	p.before++
	p.estimate.done(r, took)
}

// begins tells how many runs are to be done now.
func (p *progress) begins(runs int) {
	p.runs = runs
	if p.before > 0 {
		p.say(fmt.Sprintf("%d of %d runs are there already", p.before, p.before+runs))
	}
}

// again tells that a run which was kept is to be done after all.
func (p *progress) again(r *experiment.Run, why string) {
	p.before--
	p.runs++
	p.estimate.open[r] = true
	p.say(fmt.Sprintf("%s is run again: %s", describe(r), why))
}

func (p *progress) begin(r *experiment.Run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	p.running[r] = begun{p.n, time.Now()}
	if !p.terminal {
		p.say(fmt.Sprintf("run %d of %d: %s (%v of traffic at most; %s)", p.n, p.runs, describe(r), r.Config.Duration, p.leftText()))
	}
}

func (p *progress) finished(r *experiment.Run, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.estimate.done(r, took)
	delete(p.running, r)
}

// Phase shows what is being done.
func (p runProgress) Phase(text string) { p.draw(p.run, text, true) }

// At shows how far the traffic is.
func (p runProgress) At(now, total law.Duration, flowsDone int) {
	const width = 20
	filled := 0
	if total > 0 {
		filled = int(min(width, width*int64(now)/int64(total)))
	}
	bar := strings.Repeat("=", filled) + strings.Repeat(" ", width-filled)
	p.draw(p.run, fmt.Sprintf("[%s] %.0f of %.0f s, %d flows done", bar, now.Std().Seconds(), total.Std().Seconds(), flowsDone), false)
}

// draw shows the line of a run; of several in turn, as often as of one.
func (p *progress) draw(r *experiment.Run, text string, always bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, running := p.running[r]
	if !p.terminal || !running || (!always || len(p.running) > 1) && time.Since(p.shown) < redraw {
		return
	}
	p.shown = time.Now()
	fmt.Fprintf(p.w, "\r\x1b[K%d/%d %s: %s (%s)", at.n, p.runs, describe(r), text, p.leftText())
}

// say writes a line that stays.
func (p *progress) say(text string) {
	clear := ""
	if p.terminal {
		clear = clearLine
	}
	fmt.Fprintf(p.w, "%s%s\n", clear, text)
}

// leftText words how long it will be.
func (p *progress) leftText() string {
	left, measured := p.estimate.left()
	for r, b := range p.running {
		left -= min(time.Since(b.since), p.estimate.of(r)) / p.estimate.beside(r)
	}
	left = max(0, left)
	if !measured {
		return "at most about " + roughly(left) + " left"
	}
	return "about " + roughly(left) + " left"
}

// roughly writes a time as a person would say it: 45s, 12m, 2h05m.
func roughly(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%.0fm", d.Minutes())
	}
	d = d.Round(time.Minute)
	return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
}

func (p *progress) close() {
	if p.terminal {
		fmt.Fprint(p.w, clearLine)
	}
}

// estimate tells how long the runs that are left will take, from those that are done.
type estimate struct {
	open  map[*experiment.Run]bool
	took  map[string][]time.Duration // by what differs in nothing but its seed
	ratio []float64                  // of each run that is done: what it took to its longest duration
}

// around is what a run takes besides its traffic.
const around = 5 * time.Second

func newEstimate(planned []*experiment.Run) estimate {
	e := estimate{open: map[*experiment.Run]bool{}, took: map[string][]time.Duration{}}
	for _, r := range planned {
		e.open[r] = true
	}
	return e
}

// alike is equal for runs that differ in nothing but their seed.
func alike(r *experiment.Run) string {
	same := *r
	same.Seed = 0
	return describe(&same)
}

func (e *estimate) done(r *experiment.Run, took time.Duration) {
	delete(e.open, r)
	e.took[alike(r)] = append(e.took[alike(r)], took)
	e.ratio = append(e.ratio, float64(took)/float64(r.Config.Duration.Std()+around))
}

// of is how long a run may be expected to take: as long as the same with other seeds, else in
// proportion to its longest duration as the others did.
func (e *estimate) of(r *experiment.Run) time.Duration {
	if took := e.took[alike(r)]; len(took) > 0 {
		sum := time.Duration(0)
		for _, t := range took {
			sum += t
		}
		return sum / time.Duration(len(took))
	}
	longest := r.Config.Duration.Std() + around
	if len(e.ratio) == 0 {
		return longest
	}
	sum := 0.0
	for _, v := range e.ratio {
		sum += v
	}
	return time.Duration(float64(longest) * sum / float64(len(e.ratio)))
}

// left sums up all that is open; measured is false as long as nothing is done.
func (e *estimate) left() (left time.Duration, measured bool) {
	for r := range e.open {
		left += e.of(r) / e.beside(r)
	}
	return left, len(e.ratio) > 0
}

// beside is how many runs of a world are under way at a time.
func (e *estimate) beside(r *experiment.Run) time.Duration {
	if r.World == experiment.WorldSim {
		return time.Duration(runtime.GOMAXPROCS(0))
	}
	return 1
}
