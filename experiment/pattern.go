package experiment

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/law"
)

// patternKeys lists for each pattern the keys that a traffic item must have and may have. Keys that every item may
// have are not in it.
var patternKeys = map[string]struct{ needs, may []string }{
	"bulk":        {may: []string{"size", "count", "stop", "gap", "give_up", "deadline"}},
	"cbr":         {needs: []string{"rate"}, may: []string{"size", "count", "stop", "gap"}},
	"burst":       {may: []string{"size", "cdf", "count", "stop", "every", "epochs", "gap", "give_up", "connection", "deadline"}},
	"closed_loop": {may: []string{"size", "cdf", "requests", "concurrency", "stop", "every", "epochs", "gap", "give_up", "connection", "deadline"}},
	"poisson":     {needs: []string{"load"}, may: []string{"size", "cdf", "stop", "give_up", "connection", "deadline"}},
}

// patternOnly lists the keys that only some patterns have.
var patternOnly = []string{
	"size", "cdf", "load", "count", "requests", "concurrency", "stop", "every", "epochs", "gap", "give_up", "connection", "deadline", "rate",
}

// pattern checks the keys and times of one traffic item.
func (c *checker) pattern(f *File, i int) {
	t, path := f.Traffic[i], []string{"traffic", strconv.Itoa(i)}
	in := func(key string) []string { return append(slices.Clone(path), key) }
	has := func(key string) bool { return c.Given(in(key)...) }
	keys := patternKeys[t.Pattern]
	for _, key := range keys.needs {
		if !has(key) {
			c.Fail(in(key), "the key is missing", fmt.Sprintf("pattern %s needs %s", t.Pattern, strings.Join(keys.needs, ", ")))
		}
	}
	for _, key := range patternOnly {
		if has(key) && !slices.Contains(keys.needs, key) && !slices.Contains(keys.may, key) {
			c.Fail(in(key), fmt.Sprintf("pattern %s has no %s", t.Pattern, key),
				"allowed: "+strings.Join(slices.Concat(keys.needs, keys.may), ", "))
		}
	}
	sized := has("size") || has("cdf")
	switch {
	case has("size") && has("cdf"):
		c.Fail(in("cdf"), "both size and cdf are given", "one of them")
	case !sized && slices.Contains(keys.may, "cdf"):
		c.Fail(in("size"), "the key is missing", fmt.Sprintf("pattern %s needs size or cdf", t.Pattern))
	case has("size") && t.Size == 0:
		c.Fail(in("size"), "0 is not a size", "at least 1B")
	}
	if t.Pattern == "cbr" && has("rate") && t.Rate == 0 {
		c.Fail(in("rate"), "0 is not a rate", "above 0kbit")
	}
	if t.Pattern == "closed_loop" && !has("requests") && !has("stop") {
		c.Fail(in("requests"), "the key is missing", "pattern closed_loop needs requests or stop")
	}
	if has("deadline") && !sized {
		c.Fail(in("deadline"), "a flow without size has no deadline", "a size as well")
	}
	if has("deadline") && t.Deadline == 0 {
		c.Fail(in("deadline"), "0 is not a deadline", "above 0s")
	}
	for _, key := range []string{"think", "batch"} {
		if has(key) && t.Data != "pull" {
			c.Fail(in(key), "push asks for nothing", "data: pull")
		}
	}
	if t.Think[1] < t.Think[0] {
		c.Fail(in("think"), fmt.Sprintf("the longest time, %s, is less than the shortest, %s", t.Think[1], t.Think[0]), "[least, most]")
	}
	c.udp(t, in)
	c.times(f, t, in, has)
	c.guests(path, t.Guests)
}

func (c *checker) udp(t Traffic, in func(string) []string) {
	if t.Proto != "udp" {
		return
	}
	if t.Pattern != "bulk" && t.Pattern != "cbr" {
		c.Fail(in("proto"), "pattern "+t.Pattern+" cannot be udp", "bulk or cbr, or tcp")
	}
	if t.Data == "pull" {
		c.Fail(in("data"), "udp has no connection to ask over", "push, or tcp")
	}
}

func (c *checker) times(f *File, t Traffic, in func(string) []string, has func(string) bool) {
	if t.Start >= f.Duration && f.Duration > 0 {
		c.Fail(in("start"), fmt.Sprintf("it starts at %s, but the run ends at %s", t.Start, f.Duration), "before the duration")
	}
	if has("stop") && t.Stop <= t.Start {
		c.Fail(in("stop"), fmt.Sprintf("it stops at %s and starts at %s", t.Stop, t.Start), "after start")
	}
	if t.Stop > f.Duration {
		c.Fail(in("stop"), fmt.Sprintf("it stops at %s, but the run ends at %s", t.Stop, f.Duration), "at most the duration")
	}
	switch {
	case t.Epochs > 1 && t.Every == 0:
		c.Fail(in("every"), "the key is missing", "several epochs need every, above 0s")
	case has("every") && t.Every == 0:
		c.Fail(in("every"), "0 is not an interval", "above 0s")
	case t.Epochs > 1 && t.Start < f.Duration:
		// This divides instead of multiplying because the product could overflow.
		if (f.Duration-t.Start-1)/t.Every+1 < law.Duration(t.Epochs) {
			c.Fail(in("epochs"), fmt.Sprintf("%d epochs every %s do not start before %s", t.Epochs, t.Every, f.Duration), "as many as start before the duration")
		}
	}
	if has("give_up") && t.GiveUp == 0 {
		c.Fail(in("give_up"), "0 aborts every flow", "above 0s")
	}
}
