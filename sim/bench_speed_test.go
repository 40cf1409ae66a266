package sim

// How fast the simulator is: scripts/bench-sim, make bench-sim.
//
//	bench_speed_test.go  flags, the clock, the report
//	bench_case_test.go   whole runs of experiments
//	bench_bare_test.go   their baseline: the same packets over the same network, without TCP
//	bench_scale_test.go  cost against what is queued and against the number of flows; memory
//	bench_print_test.go  the report as text
//	bench_files_test.go  instead of all that: every run of whole files, on one processor and on two

import (
	"encoding/json"
	"flag"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	speedFull    = flag.Bool("speed", false, "TestSpeed: measure, at full length, and print")
	speedJSON    = flag.String("speed-json", "", "TestSpeed: a file for the figures")
	speedOnly    = flag.String("speed-only", "", "TestSpeed: this case alone")
	speedRepeats = flag.Int("speed-repeats", 3, "TestSpeed: the least of so many measurements counts")
	speedProfile = flag.String("speed-profile", "", "TestSpeed: a file for a profile of the cases alone, without baselines")
	speedFiles   = flag.String("speed-files", "", "TestSpeed: all runs of these experiment files, with commas between them")
	speedOwn     = flag.Bool("speed-own", false, "TestSpeed: of files also the schemes of Weir's own")
	speedCores   = flag.String("speed-cores", oneAndTwo(), "TestSpeed: of a file so many runs at a time")
)

// oneAndTwo returns "1,2" if there are two processors.
func oneAndTwo() string {
	if runtime.NumCPU() < 2 {
		return "1"
	}
	return "1,2"
}

// TestSpeed measures how fast the simulator is. Without -speed it only checks that the measurements work, with
// shortened runs, and its timings mean nothing.
func TestSpeed(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the garbage collector's share is then of this processor too
	if *speedRepeats < 1 {
		t.Fatalf("-speed-repeats %d: at least 1", *speedRepeats)
	}
	r := &speedReport{Machine: thisMachine(), References: references, out: io.Discard}
	if *speedFull {
		r.out = os.Stdout
	} else {
		*speedRepeats = 1
	}
	r.head()
	switch {
	case *speedFiles != "":
		r.files(t, strings.Split(*speedFiles, ","), parseCores(t, *speedCores))
	case *speedProfile != "":
		profileCases(t, *speedProfile)
	default:
		r.cases(t)
		if *speedOnly == "" {
			r.scale(t)
		}
	}
	if *speedJSON != "" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(*speedJSON, append(text, '\n'), 0o644); err != nil { //nolint:gosec // for anybody
			t.Fatal(err)
		}
	}
}

// speedReport is all figures.
type speedReport struct {
	Machine    machine     `json:"machine"`
	References []reference `json:"references_of_other_machines"`
	Cases      []caseRow   `json:"cases,omitempty"`
	Queued     []scaleRow  `json:"cost_against_queue,omitempty"`
	Flows      []scaleRow  `json:"cost_against_flows,omitempty"`
	Memory     *memory     `json:"memory,omitempty"`
	Files      []fileRow   `json:"files,omitempty"`

	out io.Writer
}

// machine describes the machine of the figures.
type machine struct {
	Processor string `json:"processor"`
	Count     int    `json:"processors"`
	Go        string `json:"go"`
	Load      string `json:"load_average"` // at the start: of 1, 5 and 15 minutes
}

func thisMachine() machine {
	m := machine{Processor: runtime.GOARCH, Count: runtime.NumCPU(), Go: runtime.Version()}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				m.Processor = strings.TrimSpace(value)
				break
			}
		}
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(load))[:3], " ")
	}
	return m
}

// reference is the speed of another simulator on another machine.
type reference struct {
	Name    string  `json:"name"`
	Packets float64 `json:"data_packets_per_s"`
}

// references are end-to-end data packets per second of one thread with 4 long TCP flows. They were measured once,
// elsewhere, and not in this run, so a ratio to them is only a rough comparison.
var references = []reference{{"htsim", 3.0e6}, {"ns-2.35", 627e3}, {"ns-3.44", 33e3}}

// spent is the processor time of this process, and the wall time.
type spent struct{ cpu, wall time.Duration }

// stopwatch times f. Read the processor time: other work on the machine changes it far less than the wall time.
func stopwatch(f func()) spent {
	runtime.GC()
	wall, cpu := time.Now(), processorTime()
	f()
	return spent{processorTime() - cpu, time.Since(wall)}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// least returns the smaller of the two; the zero value counts as none.
func (s spent) least(other spent) spent {
	if s == (spent{}) || other.cpu < s.cpu {
		return other
	}
	return s
}

// per returns nanoseconds of processor time for each of n.
func (s spent) per(n int64) float64 { return float64(s.cpu) / float64(n) }

// share returns the part of the wall time in which this process had the processor.
func (s spent) share() float64 { return float64(s.cpu) / float64(s.wall) }

// live returns the bytes of the heap that are in use.
func live() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// allocations returns the number of allocations so far.
func allocations() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Mallocs)
}
