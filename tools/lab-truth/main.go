// Command truth compares the lab with measurements from outside it: iperf3, nginx with ab, the delay of a probe,
// and the machine itself. It also tests a law with floods, with idle connection pools, and against a path without
// the law. It prints one row for each check and exits with 1 when one is outside its limit.
//
// Run it with `make lab-truth` on a quiet machine; it takes about twenty-five minutes. Names of groups as
// arguments (make lab-truth GROUPS="flood pool") select some.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
)

// row is one check: our value, the reference, and the allowed difference.
type row struct {
	what            string
	ours, reference float64
	unit            string
	// limit is the largest |ours/reference - 1| that passes; with atLeast, the smallest ours/reference, with
	// atMost the largest; 0: no limit, the row is for information.
	limit           float64
	atLeast, atMost bool
	out             bool // it fails whatever the ratio is; the note has the reason
	note            string
}

func (r row) ratio() float64 { return r.ours / r.reference }

func (r row) ok() bool {
	switch {
	case r.out:
		return false
	case r.limit == 0:
		return true
	case r.atLeast:
		return r.ratio() >= r.limit
	case r.atMost:
		return r.ratio() <= r.limit
	}
	return r.ratio() >= 1-r.limit && r.ratio() <= 1+r.limit
}

func (r row) String() string {
	verdict, allowed := "ok", fmt.Sprintf("within %.0f %%", 100*r.limit)
	switch {
	case r.limit == 0:
		allowed, verdict = "", ""
	case r.atLeast:
		allowed = fmt.Sprintf("at least %.2f", r.limit)
	case r.atMost:
		allowed = fmt.Sprintf("at most %.2f", r.limit)
	}
	if !r.ok() {
		verdict = "OUT"
	}
	return fmt.Sprintf("%-54s %10.2f %10.2f %-7s %7.3f  %-14s %-4s %s", r.what, r.ours, r.reference, r.unit, r.ratio(), allowed, verdict, r.note)
}

// check is one group of rows.
type check struct {
	name string
	run  func(context.Context) ([]row, error)
}

func checks() []check {
	return []check{
		{"capacity", capacity},
		{"delay", queueAgainstDelay},
		{"iperf3", goodputAgainstIperf},
		{"http", fctAgainstHTTP},
		{"cost", costOfMeasuring},
		{"repeat", repeatability},
		{"racks", racksUpDown},
		{"flood", flood},
		{"flood-credits", floodCredits},
		{"pool", pool},
		{"timer", timer},
		{"unshaped", unshaped},
		{"unshaped-credits", unshapedCredits},
		{"switch", switchCost},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := runChecks(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "truth: "+err.Error())
		os.Exit(1) //nolint:gocritic // the deferred stop only restores signals
	}
}

// runChecks runs the named checks, or all.
func runChecks(ctx context.Context, names []string) error {
	fmt.Printf("%-54s %10s %10s %-7s %7s  %-14s\n", "check", "lab", "reference", "unit", "ratio", "allowed")
	out := 0
	for _, c := range checks() {
		if len(names) > 0 && !slices.Contains(names, c.name) {
			continue
		}
		rows, err := c.run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		for _, r := range rows {
			fmt.Println(r)
			if !r.ok() {
				out++
			}
		}
	}
	if out > 0 {
		return fmt.Errorf("%d checks are outside their limits; the table marks them", out)
	}
	return nil
}
