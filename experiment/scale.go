package experiment

import (
	"maps"
	"reflect"
	"slices"

	"weir/law"
)

// A world that is k times slower (lab.time_scale) gets every rate divided and every time multiplied
// by k; sizes stay.

// scaleTime and scaleRate bring a time or rate of the experiment to a world that is k times slower.
func scaleTime(d law.Duration, k float64) law.Duration { return law.Duration(round(float64(d) * k)) }

func scaleRate(r law.Rate, k float64) law.Rate { return law.Rate(round(float64(r) / k)) }

func round(x float64) int64 { return int64(x + 0.5) }

// scaleConfig brings a Config to a world that is k times slower: every rate divided, every time
// multiplied by k. Sizes stay, and so do the delay of links and the RTT, which no world can scale
// for real.
func scaleConfig(c Config, k float64) Config {
	g := *c.Graph
	g.Links = slices.Clone(g.Links)
	for i := range g.Links {
		g.Links[i].Rate = scaleRate(g.Links[i].Rate, k)
	}
	c.Graph = &g
	c.Profiles = slices.Clone(c.Profiles)
	for i, p := range c.Profiles {
		c.Profiles[i] = scaleGuests(p, k)
	}
	c.Items = slices.Clone(c.Items)
	for i := range c.Items {
		t := &c.Items[i].Traffic
		for _, d := range []*law.Duration{&t.Start, &t.Stop, &t.Every, &t.Gap, &t.GiveUp, &t.Deadline} {
			*d = scaleTime(*d, k)
		}
		t.Rate = scaleRate(t.Rate, k)
		t.Guests = scaleGuests(t.Guests, k)
	}
	c.Duration, c.Series = scaleTime(c.Duration, k), scaleTime(c.Series, k)
	windows := make(map[string][2]law.Duration, len(c.Windows))
	for label, w := range c.Windows {
		windows[label] = [2]law.Duration{scaleTime(w[0], k), scaleTime(w[1], k)}
	}
	c.Windows = windows
	c.Ports = maps.Clone(c.Ports)
	return c
}

// scaleGuests multiplies the times that the stack lets us set; delayed ACK is not one of them.
func scaleGuests(g Guests, k float64) Guests {
	scaled := func(d *law.Duration) *law.Duration {
		if d == nil {
			return nil
		}
		out := scaleTime(*d, k)
		return &out
	}
	g.RTOMin, g.InitialRTO = scaled(g.RTOMin), scaled(g.InitialRTO)
	return g
}

// scaleParams returns a copy of a law's configuration with every time multiplied and every rate
// divided by k; sizes and fractions stay. It is a value, not a pointer.
func scaleParams(params any, k float64) any {
	v := reflect.ValueOf(params).Elem()
	scaled := reflect.New(v.Type()).Elem()
	scaled.Set(v)
	for _, f := range reflect.VisibleFields(v.Type()) {
		switch field := scaled.FieldByIndex(f.Index); x := field.Interface().(type) {
		case law.Duration:
			field.Set(reflect.ValueOf(scaleTime(x, k)))
		case law.Rate:
			field.Set(reflect.ValueOf(scaleRate(x, k)))
		}
	}
	return scaled.Interface()
}
