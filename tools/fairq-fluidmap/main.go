//go:build cgo

// Command fairq-fluidmap runs experiment Q0: FairQ on the authors' fluid model of a queue. It also maps where the queue
// settles, over alpha, T, M and RTT. It draws q0.png and q0-map.png into a directory and puts its tables into a page of
// documentation, between the marks of Q0.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"weir/datapath/fairq/fluid"
	"weir/datapath/native"
	"weir/experiment/report"
	"weir/internal/replace"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: fairq-fluidmap FIGURES-DIRECTORY PAGE.md")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "fairq-fluidmap:", err)
		os.Exit(1)
	}
}

func run(dir, page string) error {
	var text bytes.Buffer
	means, courses := meanTable(&text)
	stability := measure()
	stability.tables(&text)
	old, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	fresh, err := report.Into(old, "Q0", text.Bytes())
	if err != nil {
		return err
	}
	return errors.Join(
		drawMeans(filepath.Join(dir, "q0.png"), means, courses),
		stability.draw(filepath.Join(dir, "q0-map.png")),
		replace.Bytes(page, 0o644, fresh),
	)
}

const packet = 1500 // bytes, as the report counts

// asReported is RWNDQ1's queue: 10 Gbit/s, RTT 100 us, 83 packets, alpha 20 %, T 50 us, M 10 (SPEC 1.1). The report does
// not say how many flows; the model has the sum of their windows alone.
func asReported() fluid.Case {
	return fluid.Case{
		Model:  fluid.Model{RateBps: 10e9 / 8, RTT: 100 * time.Microsecond, Tick: 50 * time.Microsecond},
		Buffer: 83 * packet, Alpha: 0.2, Updates: 10, MSS: packet, Flows: 1,
	}
}

// version is one curve of Fig. 1, or one to compare it with.
type version struct {
	name string
	of   fluid.Case
}

func versions() []version {
	with, without := asReported(), asReported()
	without.SlowStart = native.SlowStartOff
	typeset := with
	typeset.ConstantRTT = true
	return []version{{"with slow start", with}, {"without", without}, {"round trip without the queue, as typeset", typeset}}
}

const reportedTicks = 100_000 // of Fig. 1

// meanTable writes Fig. 1 in numbers.
func meanTable(w *bytes.Buffer) ([]version, []*fluid.Course) {
	all := versions()
	var courses []*fluid.Course
	fmt.Fprintf(w, "A packet is 1500 B, and the target is %.1f packets. The mean is that of the queue since the start, as in Fig. 1.\n\n", 83*asReported().Alpha)
	fmt.Fprintln(w, "| | mean after 10,000 T | 20,000 T | 100,000 T | queue in the last quarter |")
	fmt.Fprintln(w, "|---|---:|---:|---:|---:|")
	for _, v := range all {
		c := v.of.Run(reportedTicks)
		courses = append(courses, c)
		least, _, most := c.Range(0.75, 1)
		fmt.Fprintf(w, "| %s | %.2f | %.2f | %.2f | %.1f to %.1f |\n", v.name,
			c.MeanAt(reportedTicks/10)/packet, c.MeanAt(reportedTicks/5)/packet, c.MeanAt(reportedTicks)/packet, least/packet, most/packet)
	}
	return all, courses
}
