package sim

import "fmt"

// head prints how to read the report.
func (r *speedReport) head() {
	r.print("%s, %d processors, %s, load average %s\n", r.Machine.Processor, r.Machine.Count, r.Machine.Go, r.Machine.Load)
}

func (r *speedReport) print(format string, args ...any) { fmt.Fprintf(r.out, format, args...) }

func (r *speedReport) caseHead() {
	r.print(`
Whole runs on one processor, in its own time; the least of %d.
  packet   one with data that arrived at its host     hop    one packet, with data or not, on one line
  allocs   for a data packet, in the run's second half
  bare     ns for a data packet where the same network moves as many, and as many acknowledgements a data packet,
           without TCP, in this run;  x bare: ns/packet in those
  MB       the heap near the end: network, hosts, packets, what was measured
  own      share of the time on the wall that the processor was ours; well under 100 %%: figures of a busy machine

%-16s %9s %8s %8s %7s %8s %8s %9s %7s %7s %6s %5s %5s
`, *speedRepeats, "", "packets", "Mpkt/s", "ns/pkt", "hops/pk", "ns/hop", "Mevent/s", "allocs/pk", "bare", "x bare", "flows", "MB", "own")
}

func (r *speedReport) caseLine(c *caseRow) {
	r.print("%-16s %9d %8.3f %8.0f %7.1f %8.1f %8.2f %9.5f %7.0f %7.2f %6d %5.0f %4.0f%%\n",
		c.Name, c.Packets, c.PerSecond/1e6, c.Ns, c.Hops, c.NsPerHop, c.EventRate/1e6, c.Allocs, c.Bare, c.OverBare, c.Flows,
		float64(c.Live)/1e6, 100*c.Share)
}

func (r *speedReport) caseFoot() {
	for _, c := range r.Cases {
		r.print("%s: %s\n", c.Name, c.About)
	}
	if c := r.Cases[0]; c.Name == "4 flows" {
		r.print("\nOther simulators, one thread, 4 long TCP flows, measured on other machines and not here:")
		for i, other := range r.References {
			if i > 0 {
				r.print(",")
			}
			r.print(" %s %.3g M packets/s", other.Name, other.Packets/1e6)
		}
		r.print(".\n4 flows in those:")
		for _, other := range r.References {
			r.print("  %.2f x %s", c.PerSecond/other.Packets, other.Name)
		}
		r.print("\n")
	}
}

func (r *speedReport) scaleHead(what string) {
	r.print("\nCost of a data packet against %s; 2 hops, nothing lost, reno.\n", what)
	r.print("x first: ns in the first row's; bare: without TCP, the same packets under way\n\n")
	r.print("%9s %9s %8s %8s %8s %9s %8s %8s %7s %5s\n",
		"flows", "queued", "ns/pkt", "x first", "events", "allocs/pk", "bare", "x first", "x bare", "own")
}

// scaleLine prints the last row, compared with the first.
func (r *speedReport) scaleLine(rows []scaleRow) {
	first, s := &rows[0], &rows[len(rows)-1]
	s.OverFirst, s.BareFirst = s.Ns/first.Ns, s.Bare/first.Bare
	r.print("%9d %9d %8.0f %8.2f %8.2f %9.5f %8.0f %8.2f %7.2f %4.0f%%\n",
		s.Flows, s.Queued, s.Ns, s.OverFirst, s.Events, s.Allocs, s.Bare, s.BareFirst, s.OverBare, 100*s.Share)
}

func (r *speedReport) memoryLines() {
	m := r.Memory
	r.print("\nMemory, bytes of heap:\n")
	r.print("%8.0f a queued packet in the network (a packet is 128, its place in a port's ring 16: rings are powers of two)\n", m.QueuedBare)
	r.print("%8.0f a queued packet with its sender's record\n", m.QueuedTCP)
	r.print("%8.0f a flow's TCP: both ends, records for its 10 packets under way\n", m.FlowTCP)
	if m.FlowRun > 0 {
		r.print("%8.0f a flow of the run with 10k: both ends, its programs, what was measured of it\n", m.FlowRun)
	}
}

func (r *speedReport) fileHead(cores []int) {
	r.print(`
All runs of whole files in the simulator, at the file's own rates: all seeds, axes and schemes (%s).
  s      seconds on the wall, statistics included, reports not
  cpu s  processor time of all together; well under s times the processors: others ran too
  packet one with data that arrived at its host

%-24s %6s %13s %9s`, map[bool]string{false: "without Weir's own", true: "those of this build"}[*speedOwn], "", "runs", "packets", "sim. s")
	for _, n := range cores {
		r.print("   %d: %7s %7s %6s", n, "s", "cpu s", "Mpkt/s")
	}
	r.print("\n")
}

func (r *speedReport) fileLine(f *fileRow) {
	r.print("%-24s %6d %13d %9.0f", f.File, f.Runs, f.Packets, f.Simulated)
	for _, c := range f.Cores {
		r.print("      %7.1f %7.1f %6.2f", c.Seconds, c.CPU, float64(f.Packets)/c.Seconds/1e6)
	}
	r.print("\n")
}
