// Package claim reads the claims of an experiment file and decides them from its results.
//
//	claim  = sum op sum                        op: <= >= < > == !=
//	sum    = product { (+|-) product }
//	product = factor { (*|/) factor }
//	factor = number | -factor | (sum) | abs(sum) | min(sum, ...) | max(sum, ...) | path
//	       | spread(path, axis)                largest minus smallest over the axis
//	       | fraction_below(path, number)      share of a distribution's values below it
//	       | first_below(path, axis, number)   first value of the axis below that fraction of the maximum
//	path   = scheme [ "[" axis=value {, axis=value} "]" ] . name { . name }
//
// The names of a path are [window.]group-or-port.metric: ecn.loaded.mice.fct_ms.p99.
package claim

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits of one claim.
const (
	maxText  = 2000
	maxDepth = 40
)

// Claim is a parsed claim.
type Claim struct {
	Text        string
	Op          string
	left, right expr
}

// Path names a number, or with fraction_below a distribution, of the runs of a scheme.
type Path struct {
	Scheme string
	At     []Binding // axes that the path fixes, in the order written
	Names  []string  // [window,] group or port, metric...
	// Over is the axis of spread or first_below, or empty.
	Over string
	// Distribution is true in fraction_below: the path names a distribution, not a number.
	Distribution bool
}

// Binding fixes an axis to one of its values.
type Binding struct{ Axis, Value string }

func (p *Path) String() string {
	var b strings.Builder
	b.WriteString(p.Scheme)
	for i, at := range p.At {
		b.WriteString([]string{",", "["}[btoi(i == 0)] + at.Axis + "=" + at.Value)
	}
	if len(p.At) > 0 {
		b.WriteString("]")
	}
	return b.String() + "." + strings.Join(p.Names, ".")
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Paths lists every path of the claim, from left to right.
func (c *Claim) Paths() []*Path { return append(c.left.paths(nil), c.right.paths(nil)...) }

// Parse reads a claim. The error gives the column and what was expected there.
func Parse(text string) (*Claim, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("the claim has %d characters; at most %d", len(text), maxText)
	}
	p := &parser{text: text}
	c := &Claim{Text: text}
	p.next()
	c.left = p.sum(0)
	switch p.token {
	case "<=", ">=", "<", ">", "==", "!=":
		c.Op = p.token
		p.next()
		c.right = p.sum(0)
	default:
		p.expected("one of <= >= < > == !=")
	}
	if p.token != "" {
		p.expected("the end of the claim")
	}
	if p.err != nil {
		return nil, p.err
	}
	if len(c.Paths()) == 0 {
		return nil, fmt.Errorf("the claim %q names no scheme; write SCHEME.GROUP.METRIC on at least one side", text)
	}
	return c, nil
}

type parser struct {
	text  string
	pos   int    // after the token
	start int    // of the token
	token string // empty at the end
	err   error
}

func (p *parser) expected(what string) {
	if p.err != nil {
		return
	}
	found := "the end"
	if p.token != "" {
		found = strconv.Quote(p.token)
	}
	p.err = fmt.Errorf("column %d: found %s; expected %s", p.start+1, found, what)
	p.token, p.pos = "", len(p.text)
}

// next reads a token: a name, a number, an operator.
func (p *parser) next() {
	for p.pos < len(p.text) && (p.text[p.pos] == ' ' || p.text[p.pos] == '\t' || p.text[p.pos] == '\n') {
		p.pos++
	}
	p.start = p.pos
	if p.pos == len(p.text) {
		p.token = ""
		return
	}
	switch c := p.text[p.pos]; {
	case isLetter(c):
		p.take(func(c byte) bool { return isLetter(c) || isDigit(c) })
	case isDigit(c):
		p.take(func(c byte) bool { return isDigit(c) || c == '.' })
	case strings.IndexByte("<>=!", c) >= 0:
		p.take(func(c byte) bool { return strings.IndexByte("<>=!", c) >= 0 })
	default:
		p.pos++
		p.token = p.text[p.start:p.pos]
	}
}

func (p *parser) take(more func(byte) bool) {
	for p.pos < len(p.text) && more(p.text[p.pos]) {
		p.pos++
	}
	p.token = p.text[p.start:p.pos]
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// accept takes a token if it is next.
func (p *parser) accept(token string) bool {
	if p.token != token {
		return false
	}
	p.next()
	return true
}

func (p *parser) need(token string) {
	if !p.accept(token) {
		p.expected(strconv.Quote(token))
	}
}

func (p *parser) sum(depth int) expr {
	left := p.product(depth)
	for p.token == "+" || p.token == "-" {
		op := p.token
		p.next()
		left = &binary{op, left, p.product(depth)}
	}
	return left
}

func (p *parser) product(depth int) expr {
	left := p.factor(depth)
	for p.token == "*" || p.token == "/" {
		op := p.token
		p.next()
		left = &binary{op, left, p.factor(depth)}
	}
	return left
}

func (p *parser) factor(depth int) expr {
	switch {
	case depth > maxDepth:
		p.expected("fewer brackets")
	case p.accept("-"):
		return &binary{"-", constant(0), p.factor(depth + 1)}
	case p.accept("("):
		inner := p.sum(depth + 1)
		p.need(")")
		return inner
	case p.token != "" && isDigit(p.token[0]):
		return constant(p.number())
	case p.token != "" && isLetter(p.token[0]):
		name := p.token
		p.next()
		if p.token == "(" {
			return p.call(name, depth)
		}
		return &value{p.path(name)}
	default:
		p.expected("a number, a path or a bracket")
	}
	return constant(0)
}

func (p *parser) number() float64 {
	v, err := strconv.ParseFloat(p.token, 64)
	if err != nil || p.token == "" || !isDigit(p.token[0]) {
		p.expected("a number")
		return 0
	}
	p.next()
	return v
}

// call reads a function's arguments; the current token is the bracket.
func (p *parser) call(name string, depth int) expr {
	at := p.start
	p.need("(")
	defer p.need(")")
	switch name {
	case "abs":
		return &function{name, []expr{p.sum(depth + 1)}}
	case "min", "max":
		f := &function{name, []expr{p.sum(depth + 1)}}
		for p.accept(",") {
			f.args = append(f.args, p.sum(depth+1))
		}
		return f
	case "spread", "first_below":
		path := p.namedPath()
		p.need(",")
		path.Over = p.name("an axis")
		if name == "spread" {
			return &spread{path}
		}
		p.need(",")
		return &firstBelow{path, p.number()}
	case "fraction_below":
		path := p.namedPath()
		path.Distribution = true
		p.need(",")
		return &fractionBelow{path, p.number()}
	}
	p.start, p.token = at-len(name), name
	p.expected("abs, min, max, spread, fraction_below or first_below")
	return constant(0)
}

func (p *parser) name(what string) string {
	name := p.token
	if name == "" || !isLetter(name[0]) {
		p.expected(what)
		return ""
	}
	p.next()
	return name
}

func (p *parser) namedPath() *Path { return p.path(p.name("a path")) }

// path reads the names after the scheme's name.
func (p *parser) path(scheme string) *Path {
	out := &Path{Scheme: scheme}
	if p.token == "[" {
		p.bindings(out)
	}
	for p.accept(".") {
		out.Names = append(out.Names, p.name("a window, group, port or metric"))
	}
	if len(out.Names) < 2 {
		p.expected("a path: " + scheme + ".GROUP.METRIC")
	}
	return out
}

// bindings reads [axis=value,...]. A value may be any text without commas and brackets.
func (p *parser) bindings(out *Path) {
	p.next() // "["
	for {
		axis := p.name("an axis")
		if p.err != nil {
			return
		}
		for _, b := range out.At {
			if b.Axis == axis {
				p.expected("each axis once")
				return
			}
		}
		if p.token != "=" {
			p.expected("= and a value of the axis")
			return
		}
		rest := p.text[p.pos:]
		end := strings.IndexAny(rest, ",]")
		if end < 0 || strings.TrimSpace(rest[:end]) == "" {
			p.next()
			p.expected("a value of the axis and ]")
			return
		}
		out.At = append(out.At, Binding{axis, strings.TrimSpace(rest[:end])})
		p.pos += end
		p.next()
		if p.accept(",") {
			continue
		}
		p.need("]")
		return
	}
}
