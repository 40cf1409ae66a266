package experiment

import (
	"maps"
	"reflect"
	"slices"

	"weir/law"
)

// A world that is k times slower (lab.time_scale) has every rate divided and every time multiplied by k. Sizes are
// not changed.

// scaleTime and scaleRate convert a time or rate of the experiment to a world that is k times slower.
func scaleTime(d law.Duration, k float64) law.Duration { return law.Duration(round(float64(d) * k)) }

func scaleRate(r law.Rate, k float64) law.Rate { return law.Rate(round(float64(r) / k)) }

func round(x float64) int64 { return int64(x + 0.5) }

// scaleConfig converts a Config to a world that is k times slower: every rate divided, every time multiplied by k.
// It does not change sizes, the delay of links and the RTT, which no world can really scale.
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
		for _, d := range []*law.Duration{&t.Start, &t.Stop, &t.Every, &t.Gap, &t.GiveUp, &t.Deadline, &t.Think[0], &t.Think[1], &t.Batch} {
			*d = scaleTime(*d, k)
		}
		t.Rate = scaleRate(t.Rate, k)
		t.Guests = scaleGuests(t.Guests, k)
	}
	c.Guarantees = slices.Clone(c.Guarantees)
	for i := range c.Guarantees {
		c.Guarantees[i].Rate = scaleRate(c.Guarantees[i].Rate, k)
	}
	c.Duration, c.Series = scaleTime(c.Duration, k), scaleTime(c.Series, k)
	if c.Control != nil {
		control := *c.Control
		control.Delay, control.Jitter = scaleTime(control.Delay, k), scaleTime(control.Jitter, k)
		c.Control = &control
	}
	windows := make(map[string][2]law.Duration, len(c.Windows))
	for label, w := range c.Windows {
		windows[label] = [2]law.Duration{scaleTime(w[0], k), scaleTime(w[1], k)}
	}
	c.Windows = windows
	c.Ports = maps.Clone(c.Ports)
	return c
}

// scaleGuests multiplies the times that can be set in the TCP stack; delayed ACK is not one of them.
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

// scaleParams returns a copy of a law's configuration, every time multiplied and every rate divided by k. It does
// not change sizes and fractions. The copy is a value, not a pointer.
func scaleParams(params any, k float64) any {
	return scaled(reflect.ValueOf(params).Elem(), k).Interface()
}

// scaled returns a copy of v with all times and rates scaled, including those in lists, tables and structs in it.
func scaled(v reflect.Value, k float64) reflect.Value {
	switch x := v.Interface().(type) {
	case law.Duration:
		return reflect.ValueOf(scaleTime(x, k))
	case law.Rate:
		return reflect.ValueOf(scaleRate(x, k))
	}
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out.Field(i).Set(scaled(v.Field(i), k))
			}
		}
	case v.Kind() == reflect.Slice && !v.IsNil():
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			out.Index(i).Set(scaled(v.Index(i), k))
		}
	case v.Kind() == reflect.Map && !v.IsNil():
		out.Set(reflect.MakeMap(v.Type()))
		for _, key := range v.MapKeys() {
			out.SetMapIndex(key, scaled(v.MapIndex(key), k))
		}
	}
	return out
}
