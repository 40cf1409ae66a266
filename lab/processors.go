package lab

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// processors watches how busy the machine's processors are: where they have no rest, a run measures
// them and not the network.
type processors struct {
	end  chan struct{}
	done chan struct{}
	busy []float64
}

// watchProcessors begins to watch, until stop gives what was seen. Where the kernel does not tell,
// nothing is seen.
func watchProcessors() *processors {
	p := &processors{end: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		last, err := readProcessors()
		for err == nil {
			select {
			case <-p.end:
				return
			case <-tick.C:
			}
			var now processorTimes
			if now, err = readProcessors(); err == nil && now.total > last.total {
				p.busy = append(p.busy, 1-(now.idle-last.idle)/(now.total-last.total))
				last = now
			}
		}
	}()
	return p
}

// stop gives the share of all processors that was not idle, second by second.
func (p *processors) stop() []float64 {
	close(p.end)
	<-p.done
	return p.busy
}

// processorTimes is what the kernel counted of all processors since it started, in its ticks.
type processorTimes struct{ idle, total float64 }

func readProcessors() (processorTimes, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return processorTimes{}, fmt.Errorf("read how busy the processors are: %w", err)
	}
	return parseProcessors(string(text))
}

// parseProcessors reads the first line of /proc/stat: cpu user nice system idle iowait irq softirq steal
// guest guest_nice, the last two of which are in user and nice already.
func parseProcessors(text string) (processorTimes, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 5 || fields[0] != "cpu" {
		return processorTimes{}, fmt.Errorf("read how busy the processors are: %q", line)
	}
	var t processorTimes
	for i, f := range fields[1:min(len(fields), 9)] {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return processorTimes{}, fmt.Errorf("read how busy the processors are: %w", err)
		}
		t.total += v
		if i == 3 || i == 4 {
			t.idle += v
		}
	}
	return t, nil
}
