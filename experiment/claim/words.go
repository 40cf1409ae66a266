package claim

import (
	"fmt"
	"strconv"
	"strings"
)

// Words returns a claim as a sentence without its formula: "p99 completion time of mice under droptail divided by
// p99 completion time of mice under ecn: at least 10". Units are those of the metrics (ms, Mbit/s, bytes).
func (c *Claim) Words() string {
	return c.left.words(false) + ": " + opWords[c.Op] + " " + c.right.words(false)
}

var opWords = map[string]string{
	"<=": "at most", ">=": "at least", "<": "less than", ">": "more than", "==": "equal to", "!=": "other than",
}

// inside puts a part of a larger expression in brackets where the sentence would be ambiguous.
func inside(text string, within bool) string {
	if within {
		return "(" + text + ")"
	}
	return text
}

func (c constant) words(bool) string { return strconv.FormatFloat(float64(c), 'g', -1, 64) }

func (b *binary) words(within bool) string {
	l, r := b.left.words(true), b.right.words(true)
	switch b.op {
	case "+":
		return inside(l+" plus "+r, within)
	case "-":
		return inside(l+" minus "+r, within)
	case "*":
		return inside(l+" times "+r, within)
	}
	return inside(l+" divided by "+r, within)
}

func (f *function) words(bool) string {
	var args []string
	for _, a := range f.args {
		args = append(args, a.words(false))
	}
	switch f.name {
	case "abs":
		return "the absolute value of (" + args[0] + ")"
	case "min":
		return "the minimum of " + strings.Join(args, " and ")
	}
	return "the maximum of " + strings.Join(args, " and ")
}

func (v *value) words(bool) string { return v.path.words() }

func (s *spread) words(bool) string {
	return "the spread over " + s.path.Over + " of " + s.path.words()
}

func (f *fractionBelow) words(bool) string {
	return fmt.Sprintf("the share below %g of %s", f.x, f.path.words())
}

func (f *firstBelow) words(bool) string {
	return fmt.Sprintf("the first %s at which %s falls below %g of its maximum", f.path.Over, f.path.words(), f.fraction)
}

// words describes a path: its metric, of which group or port, in which window, under which scheme.
func (p *Path) words() string {
	names := p.Names
	window := ""
	// The name before the metric's is a group or a port; the name before that is a window.
	if at := metricAt(names); at == 2 {
		window, names = " in "+names[0], names[1:]
	}
	of := " of " + names[0]
	if names[0] == "all" {
		of = " at all ports"
	}
	text := metricWords(names[1:]) + of + window + " under " + p.Scheme
	for i, b := range p.At {
		text += []string{", ", " with "}[btoi(i == 0)] + b.Axis + " " + b.Value
	}
	return text
}

// metricAt returns the position in a path where the metric begins.
func metricAt(names []string) int {
	if len(names) > 2 {
		if _, known := metricNames[names[1]]; !known {
			return 2
		}
	}
	return min(1, len(names))
}

// metricNames are the first words of metrics.
var metricNames = map[string]string{
	"flows": "flows", "unfinished": "unfinished flows", "never_connected": "connections never opened", "bytes": "payload in bytes",
	"drops": "drops", "timeouts": "timeouts", "flows_with_timeout": "flows with a timeout",
	"timeouts_floss": "timeouts after a full window loss", "timeouts_lack": "timeouts because of lost ACKs",
	"out_of_order":    "segments out of order",
	"throughput_mbps": "throughput", "goodput_mbps": "goodput per flow", "fct_ms": "completion time", "jain": "Jain index",
	"series_mbps": "rate over time", "by_mouse": "by mouse:", "by_size": "by size:", "slowdown": "slowdown", "deadlines": "deadlines",
	"queue_bytes": "queue", "marks": "marks", "utilisation": "utilisation", "law": "law:", "live": "flows in progress",
	"settling": "settling:",
}

func metricWords(names []string) string {
	if len(names) == 0 {
		return ""
	}
	first, known := metricNames[names[0]]
	if !known {
		first = strings.ReplaceAll(names[0], "_", " ")
	}
	var rest []string
	for _, n := range names[1:] {
		rest = append(rest, strings.ReplaceAll(strings.TrimSuffix(n, "_ms"), "_", " "))
	}
	if len(rest) == 1 && !strings.HasSuffix(first, ":") { // a statistic of a distribution
		return rest[0] + " " + first
	}
	return strings.TrimSpace(first + " " + strings.Join(rest, " "))
}
