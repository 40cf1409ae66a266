package lab

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// processors records how busy the machine's processors are: if they are fully busy, a run measures them and not
// the network.
type processors struct {
	end  chan struct{}
	done chan struct{}
	busy []float64
}

// watchProcessors records until stop returns the result. If the kernel does not report it, the result is empty.
func watchProcessors() *processors {
	p := &processors{end: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		last, err := ReadProcessors()
		for err == nil {
			select {
			case <-p.end:
				return
			case <-tick.C:
			}
			var now ProcessorTimes
			if now, err = ReadProcessors(); err == nil && now.total > last.total {
				p.busy = append(p.busy, now.BusySince(last))
				last = now
			}
		}
	}()
	return p
}

// stop returns the share of all processors that was not idle, second by second.
func (p *processors) stop() []float64 {
	close(p.end)
	<-p.done
	return p.busy
}

// ProcessorTimes are the kernel's counters over all processors since it started, in ticks.
type ProcessorTimes struct{ idle, total float64 }

// BusySince returns the share of all processors that was not idle since before.
func (t ProcessorTimes) BusySince(before ProcessorTimes) float64 {
	return 1 - (t.idle-before.idle)/(t.total-before.total)
}

// ReadProcessors reads the counters.
func ReadProcessors() (ProcessorTimes, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return ProcessorTimes{}, fmt.Errorf("read how busy the processors are: %w", err)
	}
	return parseProcessors(string(text))
}

// parseProcessors reads the first line of /proc/stat: cpu user nice system idle iowait irq softirq steal guest
// guest_nice; the last two are included in user and nice.
func parseProcessors(text string) (ProcessorTimes, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 5 || fields[0] != "cpu" {
		return ProcessorTimes{}, fmt.Errorf("read how busy the processors are: %q", line)
	}
	var t ProcessorTimes
	for i, f := range fields[1:min(len(fields), 9)] {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return ProcessorTimes{}, fmt.Errorf("read how busy the processors are: %w", err)
		}
		t.total += v
		if i == 3 || i == 4 {
			t.idle += v
		}
	}
	return t, nil
}
