package result

import "time"

// size returns the bytes that a flow had to send; 0: it has no size, or it is not known. A flow that is done has
// sent them.
func (f *Flow) size() int64 {
	switch {
	case f.Endless:
		return 0
	case f.Size == 0 && f.Done:
		return f.Bytes
	}
	return f.Size
}

// ideal returns how long a flow would take alone; 0: not known.
func (b *builder) ideal(f *Flow) time.Duration {
	if b.Ideal == nil {
		return 0
	}
	of := *f
	of.Size = f.size()
	return b.Ideal(&of, b.raw)
}

// classes are the classes of BySize, smallest first, with the upper bound of each in bytes.
var classes = []struct {
	name string // in JSON
	text string
	most int64
	of   func(*BySize) **SizeClass
}{
	{"to_1kb", "up to 1 KB", 1e3, func(s *BySize) **SizeClass { return &s.To1KB }},
	{"to_10kb", "to 10 KB", 10e3, func(s *BySize) **SizeClass { return &s.To10KB }},
	{"to_100kb", "to 100 KB", 100e3, func(s *BySize) **SizeClass { return &s.To100KB }},
	{"to_1mb", "to 1 MB", 1e6, func(s *BySize) **SizeClass { return &s.To1MB }},
	{"to_10mb", "to 10 MB", 10e6, func(s *BySize) **SizeClass { return &s.To10MB }},
	{"above_10mb", "above 10 MB", 1<<63 - 1, func(s *BySize) **SizeClass { return &s.Above10MB }},
}

// SizeClasses returns the classes of BySize, smallest first: the name of each in a path, and in words.
func SizeClasses() [][2]string {
	var out [][2]string
	for _, c := range classes {
		out = append(out, [2]string{c.name, c.text})
	}
	return out
}

// slowdown fills in the metrics that depend on the sizes of the flows that start in the span.
func (b *builder) slowdown(g *Group, name string, s span) {
	type class struct {
		SizeClass
		fct, slow []float64
	}
	var all []float64
	sizes, known := make([]class, len(classes)), true
	for _, i := range b.flows[name] {
		f := &b.raw.Flows[i]
		n := f.size()
		if f.Endless || !s.has(f.Start) {
			continue
		}
		at := 0
		for n > classes[at].most {
			at++
		}
		c := &sizes[at]
		if c.Flows++; !f.Done {
			c.Unfinished++
			known = known && n > 0
			continue
		}
		c.fct = append(c.fct, b.ms(f.FCT()))
		if x := b.ideal(f); x > 0 {
			v := float64(f.FCT()) / float64(x)
			c.slow, all = append(c.slow, v), append(all, v)
		}
	}
	if g.FCT != nil && len(all) == g.FCT.N {
		g.Slowdown = g.distribution("slowdown", all)
	}
	used := 0
	for i := range sizes {
		used += min(sizes[i].Flows, 1)
	}
	if used < 2 || !known {
		return
	}
	g.BySize = &BySize{}
	for i := range sizes {
		c, path := &sizes[i], "by_size."+classes[i].name+"."
		if c.Flows == 0 {
			continue
		}
		c.FCT = g.distribution(path+"fct_ms", c.fct)
		if len(c.slow) == len(c.fct) {
			c.Slowdown = g.distribution(path+"slowdown", c.slow)
		}
		*classes[i].of(g.BySize) = &c.SizeClass
	}
}
