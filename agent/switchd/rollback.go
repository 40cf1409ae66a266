package switchd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/law"
)

// Figure is the quantity that a rule checks: that of the limited flows divided by that of the unlimited ones.
type Figure string

// Goodput is acknowledged bytes per second and flow. Retransmissions is the fraction of sent bytes that were sent
// before. Drops is the fraction of packets that the port drops, divided by the fraction before enforcement.
const (
	Goodput         Figure = "goodput"
	Retransmissions Figure = "retransmissions"
	Drops           Figure = "drops"
)

var figures = []Figure{Goodput, Retransmissions, Drops}

// below reports whether small values of the figure are bad.
func (f Figure) below() bool { return f == Goodput }

// Rule is one condition to stop enforcing: `goodput < 0.9`, `retransmissions > 2`, `drops > 1.5`.
type Rule struct {
	Figure Figure
	Than   float64
}

// ruleMost is the largest ratio that a rule may use; a larger one is taken for a typing error.
const ruleMost = 1000

// ParseRule parses FIGURE < NUMBER or FIGURE > NUMBER: three words. Each figure allows only one of the signs, so that a
// reversed rule is refused.
func ParseRule(text string) (r Rule, err error) {
	fail := func(format string, args ...any) (Rule, error) {
		return Rule{}, fmt.Errorf("rollback rule %q: %w", text, fmt.Errorf(format, args...))
	}
	words := strings.Split(text, " ")
	if len(words) != 3 {
		return fail("write three words with one space between, such as goodput < 0.9")
	}
	r.Figure = Figure(words[0])
	if !slices.Contains(figures, r.Figure) {
		return fail("unknown figure %q: use goodput, retransmissions or drops", words[0])
	}
	switch {
	case words[1] != "<" && words[1] != ">":
		return fail("%q is not a comparison: use < or >", words[1])
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
		return fmt.Errorf("%g is out of range: use a number above 0 and up to 1 (1: as good as without Weir)", r.Than)
	case !r.Figure.below() && (r.Than < 1 || r.Than > ruleMost):
		return fmt.Errorf("%g is out of range: use a number from 1 (as bad as without Weir) to %d", r.Than, ruleMost)
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

// broken reports whether a ratio breaks the rule.
func (r Rule) broken(ratio float64) bool {
	if r.Figure.below() {
		return ratio < r.Than
	}
	return ratio > r.Than
}

// String returns the rule in the syntax of ParseRule.
func (r Rule) String() string {
	return fmt.Sprintf("%s %s %s", r.Figure, r.sign(), strconv.FormatFloat(r.Than, 'f', -1, 64))
}

// Rollback stops enforcement on a port when a rule is broken for the time Over.
type Rollback struct {
	If   []Rule
	Over law.Duration // 1s to 1h
}

// RollbackOver is the default of Over.
const RollbackOver = law.Duration(10 * time.Second)
