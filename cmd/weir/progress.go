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

// progress shows the progress of the runs: one line that is rewritten on a terminal; elsewhere a line for each run, and one
// each minute of a run. Several runs may be in progress.
type progress struct {
	w        io.Writer
	terminal bool

	mu       sync.Mutex
	estimate estimate
	runs, n  int // number of runs to do, and of those that have begun
	before   int // stored earlier
	running  map[*experiment.Run]begun
	shown    time.Time
}

// begun is a run in progress.
type begun struct {
	n     int // its number, in the order in which runs began
	since time.Time
	said  time.Time // when it had a line last, if the output is no terminal
}

// runProgress is the experiment.Progress of one run.
type runProgress struct {
	*progress
	run *experiment.Run
}

func (p *progress) of(r *experiment.Run) experiment.Progress { return runProgress{p, r} }

// redraw is the shortest time between two updates of the line.
const redraw = 200 * time.Millisecond

// sayEvery is the time between two lines of a run where no terminal is.
const sayEvery = time.Minute

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

// console serialises the lines of several experiments.
type console struct {
	mu sync.Mutex
	w  io.Writer
}

func (c *console) Write(line []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.w.Write(line)
}

// clearing returns a writer of whole lines that stay on the terminal, next to the line of progress.
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

// clearLine makes a terminal remove the line of progress.
const clearLine = "\r\x1b[K"

// kept reports a stored run, and how long it took.
func (p *progress) kept(r *experiment.Run, took time.Duration) {
	p.before++
	p.estimate.done(r, took)
}

// begins reports how many runs must be done.
func (p *progress) begins(runs int) {
	p.runs = runs
	if p.before > 0 {
		p.say(fmt.Sprintf("%d of %d runs are finished already", p.before, p.before+runs))
	}
}

// again reports that a stored run must be repeated.
func (p *progress) again(r *experiment.Run, why string) {
	p.before--
	p.runs++
	p.estimate.open[r] = true
	p.say(fmt.Sprintf("%s is repeated: %s", describe(r), why))
}

// begin reports that a run begins. on is the worker that carries it out; "": this process.
func (p *progress) begin(r *experiment.Run, on string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	p.running[r] = begun{p.n, time.Now(), time.Now()}
	if on != "" {
		on = " on " + on
	}
	if !p.terminal {
		p.say(fmt.Sprintf("run %d of %d: %s%s (at most %v of traffic; %s)", p.n, p.runs, describe(r), on, r.Config.Duration, p.leftText()))
	}
}

func (p *progress) finished(r *experiment.Run, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.estimate.done(r, took)
	delete(p.running, r)
}

// Phase shows the present phase of the run.
func (p runProgress) Phase(text string) { p.draw(p.run, text, true) }

// At shows the progress of the traffic.
func (p runProgress) At(now, total law.Duration, flowsDone int) {
	const width = 20
	filled := 0
	if total > 0 {
		filled = int(min(width, width*int64(now)/int64(total)))
		p.passed(p.run, float64(now)/float64(total))
	}
	bar := strings.Repeat("=", filled) + strings.Repeat(" ", width-filled)
	p.draw(p.run, fmt.Sprintf("[%s] %.0f of %.0f s, %d flows done", bar, now.Std().Seconds(), total.Std().Seconds(), flowsDone), false)
}

// passed notes which share of a run's time has passed in its world.
func (p *progress) passed(r *experiment.Run, share float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, running := p.running[r]; running {
		p.estimate.passed(r, time.Since(at.since), share)
	}
}

// draw shows the line of a run; several runs take turns.
func (p *progress) draw(r *experiment.Run, text string, always bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, running := p.running[r]
	if !running {
		return
	}
	if !p.terminal {
		if time.Since(at.said) >= sayEvery {
			at.said = time.Now()
			p.running[r] = at
			p.say(fmt.Sprintf("run %d of %d: %s: %s (%s)", at.n, p.runs, describe(r), text, p.leftText()))
		}
		return
	}
	if (!always || len(p.running) > 1) && time.Since(p.shown) < redraw {
		return
	}
	p.shown = time.Now()
	fmt.Fprintf(p.w, "\r\x1b[K%d/%d %s: %s (%s)", at.n, p.runs, describe(r), text, p.leftText())
}

// note writes a line that stays, during runs.
func (p *progress) note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.say(text)
}

// say writes a line that stays.
func (p *progress) say(text string) {
	clear := ""
	if p.terminal {
		clear = clearLine
	}
	fmt.Fprintf(p.w, "%s%s\n", clear, text)
}

// leftText describes the remaining time.
func (p *progress) leftText() string {
	left, known := p.estimate.left()
	for r, b := range p.running {
		of, _ := p.estimate.of(r)
		left -= min(time.Since(b.since), of) / p.estimate.concurrent(r)
	}
	left = max(0, left)
	switch known {
	case isUnknown:
		return "the time left is not known yet"
	case isLongest:
		return "at most about " + roughly(left) + " left"
	}
	return "about " + roughly(left) + " left"
}

// roughly formats a time for people: 45s, 12m, 2h05m.
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

// knowledge is what an estimate rests on.
type knowledge int

const (
	isUnknown  knowledge = iota // the simulator may be faster or slower than the traffic
	isLongest                   // the lab's traffic takes its longest duration at most
	isMeasured                  // by runs that have ended, or by a part of one
)

// estimate estimates the time of the remaining runs from the finished ones, and from the finished parts of others.
type estimate struct {
	slots func() int // the number of the simulator's runs at a time; nil: one per processor
	open  map[*experiment.Run]bool
	took  map[string][]time.Duration        // by the settings without the seed
	ratio []float64                         // of each finished run: its time divided by its longest duration
	going map[*experiment.Run]time.Duration // runs in progress: the whole time, by the part that has passed
}

// leastShare is the share of a run that must have passed before the whole time is estimated from it.
const leastShare = 0.01

// around is the time of a run in addition to its traffic.
const around = 5 * time.Second

func newEstimate(planned []*experiment.Run) estimate {
	e := estimate{open: map[*experiment.Run]bool{}, took: map[string][]time.Duration{}, going: map[*experiment.Run]time.Duration{}}
	for _, r := range planned {
		e.open[r] = true
	}
	return e
}

// alike returns a key that is equal for runs that differ only in their seed.
func alike(r *experiment.Run) string {
	same := *r
	same.Seed = 0
	return describe(&same)
}

func (e *estimate) done(r *experiment.Run, took time.Duration) {
	delete(e.open, r)
	delete(e.going, r)
	e.took[alike(r)] = append(e.took[alike(r)], took)
	e.ratio = append(e.ratio, float64(took)/float64(r.Config.Duration.Std()+around))
}

// passed notes that a share of a run's time in its world has passed after this time.
func (e *estimate) passed(r *experiment.Run, after time.Duration, share float64) {
	if share >= leastShare {
		e.going[r] = time.Duration(float64(after) / min(share, 1))
	}
}

// of returns the expected time of a run. The part of it that has passed counts first, then the mean of the same run with other
// seeds. Without either it is in proportion to the longest duration.
func (e *estimate) of(r *experiment.Run) (time.Duration, knowledge) {
	if going := e.going[r]; going > 0 {
		return going, isMeasured
	}
	if took := e.took[alike(r)]; len(took) > 0 {
		sum := time.Duration(0)
		for _, t := range took {
			sum += t
		}
		return sum / time.Duration(len(took)), isMeasured
	}
	most := r.Config.Duration.Std() + around
	sum, n := 0.0, len(e.ratio)
	for _, v := range e.ratio {
		sum += v
	}
	if n == 0 { // the parts of runs in progress are less certain
		for other, d := range e.going {
			sum += float64(d) / float64(other.Config.Duration.Std()+around)
			n++
		}
	}
	switch {
	case n > 0:
		return time.Duration(float64(most) * sum / float64(n)), isMeasured
	case r.World == experiment.WorldSim:
		return most, isUnknown
	}
	return most, isLongest
}

// left returns the sum for all remaining runs, and the least knowledge of any.
func (e *estimate) left() (left time.Duration, known knowledge) {
	known = isMeasured
	for r := range e.open {
		d, k := e.of(r)
		left += d / e.concurrent(r)
		known = min(known, k)
	}
	return left, known
}

// concurrent returns how many runs of a world are in progress at the same time.
func (e *estimate) concurrent(r *experiment.Run) time.Duration {
	switch {
	case r.World == experiment.WorldSim && e.slots == nil:
		return time.Duration(runtime.GOMAXPROCS(0))
	case r.World == experiment.WorldSim:
		return time.Duration(max(1, e.slots()))
	}
	return 1
}
