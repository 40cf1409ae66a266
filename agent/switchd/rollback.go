package switchd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/law"
)

// Figure is what a rule looks at: of flows that are held, divided by that of flows that are free.
type Figure string

// Goodput is acknowledged bytes a second and flow. Retransmissions is the part of sent bytes that were
// sent before. Drops is the part of packets that the port drops, divided by that before enforcement.
const (
	Goodput         Figure = "goodput"
	Retransmissions Figure = "retransmissions"
	Drops           Figure = "drops"
)

var figures = []Figure{Goodput, Retransmissions, Drops}

// below says whether a figure is bad when it is small.
func (f Figure) below() bool { return f == Goodput }

// Rule is one reason to stop enforcing: `goodput < 0.9`, `retransmissions > 2`, `drops > 1.5`.
type Rule struct {
	Figure Figure
	Than   float64
}

// ruleMost is the largest ratio that a rule may name: beyond it a rule is a slip of the pen.
const ruleMost = 1000

// ParseRule reads FIGURE < NUMBER, or FIGURE > NUMBER: three words. Which of the two signs a figure takes
// is fixed, so that a rule turned round is refused and does not take effect.
func ParseRule(text string) (r Rule, err error) {
	fail := func(format string, args ...any) (Rule, error) {
		return Rule{}, fmt.Errorf("rule %q: %w", text, fmt.Errorf(format, args...))
	}
	words := strings.Split(text, " ")
	if len(words) != 3 {
		return fail("three words with a space between: goodput < 0.9")
	}
	r.Figure = Figure(words[0])
	if !slices.Contains(figures, r.Figure) {
		return fail("%q is not measured: choose goodput, retransmissions or drops", words[0])
	}
	switch {
	case words[1] != "<" && words[1] != ">":
		return fail("%q between figure and number: < or >", words[1])
	case words[1] != r.sign():
		return fail("%s is bad when it %s: write %s %s NUMBER", r.Figure, r.bad(), r.Figure, r.sign())
	}
	if strings.ContainsFunc(words[2], func(c rune) bool { return c != '.' && (c < '0' || c > '9') }) {
		return fail("%q is not a number such as 0.9", words[2])
	}
	if r.Than, err = strconv.ParseFloat(words[2], 64); err != nil {
		return fail("%q is not a number such as 0.9", words[2])
	}
	if err := r.check(); err != nil {
		return fail("%w", err)
	}
	return r, nil
}

func (r Rule) check() error {
	switch {
	case r.Figure.below() && (r.Than <= 0 || r.Than > 1):
		return fmt.Errorf("%g: above 0, and at most 1, which is as good as without Weir", r.Than)
	case !r.Figure.below() && (r.Than < 1 || r.Than > ruleMost):
		return fmt.Errorf("%g: from 1, which is as bad as without Weir, to %d", r.Than, ruleMost)
	}
	return nil
}

func (r Rule) sign() string {
	if r.Figure.below() {
		return "<"
	}
	return ">"
}

func (r Rule) bad() string {
	if r.Figure.below() {
		return "falls"
	}
	return "rises"
}

// broken says whether a ratio is what the rule forbids.
func (r Rule) broken(ratio float64) bool {
	if r.Figure.below() {
		return ratio < r.Than
	}
	return ratio > r.Than
}

// String is the rule as ParseRule reads it.
func (r Rule) String() string {
	return fmt.Sprintf("%s %s %s", r.Figure, r.sign(), strconv.FormatFloat(r.Than, 'f', -1, 64))
}

// Rollback says when to stop enforcing on a port: when a rule is broken for as long as Over. Without rules:
// never.
type Rollback struct {
	If   []Rule
	Over law.Duration // 1s to 1h
}

// RollbackOver is what Over is where a file does not say it.
const RollbackOver = law.Duration(10 * time.Second)
