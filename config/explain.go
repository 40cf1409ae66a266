package config

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"weir/law"
)

func (c *Checker) explainAll(s *validator.Schema, t *Tree, err error, prefix []string) {
	var v *validator.ValidationError
	if !errors.As(err, &v) {
		c.Fail(prefix, OneLine(err.Error()), "")
		return
	}
	found := leaves(v, nil)
	for _, unknown := range []bool{true, false} { // unknown keys first: they may explain missing ones
		for _, leaf := range found {
			if _, is := leaf.ErrorKind.(*kind.AdditionalProperties); is == unknown {
				c.explain(s, t, leaf, prefix)
			}
		}
	}
}

// leaves lists the violations that have no other violation as their cause.
func leaves(v *validator.ValidationError, to []*validator.ValidationError) []*validator.ValidationError {
	if len(v.Causes) == 0 {
		return append(to, v)
	}
	for _, cause := range v.Causes {
		to = leaves(cause, to)
	}
	return to
}

func (c *Checker) explain(s *validator.Schema, t *Tree, v *validator.ValidationError, prefix []string) {
	here := v.InstanceLocation
	path := slices.Concat(prefix, here)
	at := schemaAt(s, here)
	switch k := v.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		var known []string
		if at != nil {
			known = slices.Collect(maps.Keys(at.Properties))
		}
		for _, p := range k.Properties {
			c.UnknownKey(append(slices.Clone(path), p), known)
		}
	case *kind.Required:
		for _, p := range k.Missing {
			missing := append(slices.Clone(path), p)
			allowed := "it must be given"
			if at != nil && at.Properties[p] != nil {
				allowed += ": " + allowedBy(at.Properties[p])
			}
			if !c.Meant(missing) {
				c.Fail(missing, "the key is missing", allowed)
			}
		}
	default:
		allowed := allowedBy(at)
		if len(path) == 0 && c.Whole != "" {
			allowed = c.Whole
		}
		c.Fail(path, wrongBy(at, t.Find(here...), v.ErrorKind), allowed)
	}
}

// UnknownKey adds an error for an unknown key, with the key that may have been meant.
func (c *Checker) UnknownKey(path, known []string) {
	last := len(path) - 1
	if c.older {
		known = c.version.knownBefore(path[:last], known)
	}
	allowed := OneOf(path[last], known)
	if now := c.version.now(path); now != "" && !c.older {
		allowed = fmt.Sprintf("since version %d it is %s", c.version.Newest, c.Root.Show(strings.Split(now, ".")))
	}
	c.Fail(path, "unknown key", allowed)
	if n := Nearest(path[last], slices.Sorted(slices.Values(known))); n != "" {
		if c.meant == nil {
			c.meant = map[string]bool{}
		}
		c.meant[strings.Join(append(slices.Clone(path[:last]), n), ".")] = true
	}
}

// quantities checks that every number with a unit is in the range of its type, which a pattern cannot.
func (c *Checker) quantities(s *validator.Schema, t *Tree, path []string) {
	if s == nil || len(path) > maxDepth {
		return
	}
	if err := quantityError(s, t); err != nil {
		wrong, allowed := what(err), allowedBy(s)
		if strings.HasSuffix(wrong, "is too large") {
			allowed = largest(s)
		}
		c.Fail(path, wrong, allowed)
	}
	for _, f := range t.Fields {
		c.quantities(schemaAt(s, []string{f.Key}), f.Value, append(slices.Clone(path), f.Key))
	}
	for i, v := range t.Items {
		step := strconv.Itoa(i)
		c.quantities(schemaAt(s, []string{step}), v, append(slices.Clone(path), step))
	}
}

// wrongBy describes the fault of a value.
func wrongBy(s *validator.Schema, t *Tree, k validator.ErrorKind) string {
	given := ""
	if t != nil && t.Form == Scalar {
		given = fmt.Sprintf("%q", Clip(t.Text()))
	}
	switch k := k.(type) {
	case *kind.Type:
		if err := quantityError(s, t); err != nil && t.Form == Scalar && t.Value != nil {
			return what(err)
		}
		if t != nil && t.Form == Scalar && t.Value == nil {
			return "nothing is given"
		}
		if given == "" {
			given = "a " + map[string]string{"object": "mapping", "array": "list"}[k.Got]
		}
		return given + " is not " + kindName(k.Want)
	case *kind.Pattern:
		if err := quantityError(s, t); err != nil {
			return what(err)
		}
		return given + " is not in the form asked for"
	case *kind.Enum:
		return given + " is not known"
	case *kind.MinItems:
		return fmt.Sprintf("%d values are given", k.Got)
	case *kind.MaxItems:
		return fmt.Sprintf("%d values are given", k.Got)
	case *kind.UniqueItems:
		return fmt.Sprintf("value %d repeats value %d", k.Duplicates[1]+1, k.Duplicates[0]+1)
	case *kind.Minimum, *kind.Maximum, *kind.ExclusiveMinimum, *kind.ExclusiveMaximum:
		return given + " is out of range"
	}
	return given + " is not allowed"
}

// what returns an error's text without the list of units, which allowedBy adds.
func what(err error) string {
	text, _, _ := strings.Cut(err.Error(), ": a number and ")
	text, _, _ = strings.Cut(text, " and Gbit")
	return strings.TrimSuffix(text, " a number")
}

func kindName(want []string) string {
	names := map[string]string{
		"object": "a mapping", "array": "a list", "string": "a text", "integer": "a whole number",
		"number": "a number", "boolean": "true or false", "null": "nothing",
	}
	var out []string
	for _, w := range want {
		out = append(out, names[w])
	}
	return strings.Join(out, " or ")
}

// quantityError reads the value as the quantity that the schema names, and returns the error.
func quantityError(s *validator.Schema, t *Tree) error {
	if s == nil || t == nil {
		return nil
	}
	var into encoding.TextUnmarshaler
	switch s.Title {
	case rateTitle:
		into = new(law.Rate)
	case sizeTitle:
		into = new(law.Bytes)
	case durationTitle:
		into = new(law.Duration)
	case limitTitle:
		into = new(law.Limit)
	case prefixTitle:
		into = new(prefix)
	default:
		return nil
	}
	return into.UnmarshalText([]byte(t.Text()))
}

// allowedBy describes what a schema allows.
func allowedBy(s *validator.Schema) string {
	if s == nil {
		return ""
	}
	switch s.Title {
	case rateTitle:
		return "a rate is a number and kbit, Mbit or Gbit"
	case sizeTitle:
		return "a size is a number and B, KB, MB, KiB or MiB"
	case durationTitle:
		return "a duration is a number and ns, us, ms or s"
	case limitTitle:
		return "a limit is a number and B, KB, MB, KiB, MiB or pkt"
	case prefixTitle:
		return "a prefix is an address and its length, such as 10.0.0.0/8 or fd00::/8"
	}
	if s.Enum != nil {
		var names []string
		for _, v := range s.Enum.Values {
			names = append(names, fmt.Sprint(v))
		}
		return "allowed: " + strings.Join(names, ", ")
	}
	switch low, high := bound(s.Minimum, s.ExclusiveMinimum, "at least", "above"), bound(s.Maximum, s.ExclusiveMaximum, "at most", "below"); {
	case low != "" && high != "":
		return low + " and " + high
	case low != "":
		return low
	case s.MinItems != nil && s.MaxItems != nil && *s.MinItems == *s.MaxItems:
		return fmt.Sprintf("a list of %d", *s.MinItems)
	case s.MinItems != nil && s.MaxItems != nil:
		return fmt.Sprintf("a list of %d to %d", *s.MinItems, *s.MaxItems)
	case s.MinItems != nil:
		return fmt.Sprintf("a list of at least %d", *s.MinItems)
	case s.Description != "":
		return s.Description
	case s.Types != nil:
		return kindName(s.Types.ToStrings())
	}
	return ""
}

// largest describes the largest value of a quantity: 2^53 of its smallest units, rounded down (package law).
func largest(s *validator.Schema) string {
	switch s.Title {
	case rateTitle:
		return "at most 9007199Gbit"
	case durationTitle:
		return "at most 9007199s"
	}
	return "at most 9007199254MB"
}

func bound(inclusive, exclusive *big.Rat, with, without string) string {
	switch {
	case inclusive != nil:
		return with + " " + inclusive.RatString()
	case exclusive != nil:
		return without + " " + exclusive.RatString()
	}
	return ""
}

// prefix is an address prefix with errors in Weir's own words.
type prefix struct{}

func (*prefix) UnmarshalText(text []byte) error {
	p, err := netip.ParsePrefix(string(text))
	switch {
	case err != nil:
		return fmt.Errorf("%q is not an address prefix", Clip(string(text)))
	case p != p.Masked():
		return fmt.Errorf("%s has bits beyond its length: %s is meant, or /%d", p, p.Masked(), p.Addr().BitLen())
	}
	return nil
}
