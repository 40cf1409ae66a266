package sim

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"weir/experiment"
	"weir/sim/event"
)

// observers are the outputs of a run in addition to its measurements: captures and the trace.
type observers struct {
	captures []*capture
	trace    *trace
}

// observe opens the outputs that the World asks for.
func (w *World) observe(s *simulation, r *experiment.Run) (o *observers, err error) {
	o = &observers{}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	if w.PCAP != "" {
		if err := os.MkdirAll(w.PCAP, 0o755); err != nil {
			return o, fmt.Errorf("make a directory for captures: %w", err)
		}
		for _, p := range s.net.Ports {
			if len(p.Labels) == 0 {
				continue
			}
			c, err := newCapture(w.PCAP, FileName(r)+"-"+p.Labels[0], p)
			if err != nil {
				return o, err
			}
			o.captures = append(o.captures, c)
		}
	}
	if w.Trace != "" {
		if err := os.MkdirAll(w.Trace, 0o755); err != nil {
			return o, fmt.Errorf("make a directory for traces: %w", err)
		}
		if o.trace, err = newTrace(filepath.Join(w.Trace, FileName(r)+".parquet"), s, r); err != nil {
			return o, err
		}
	}
	return o, nil
}

// nameBytes is the longest name, in bytes. With suffixes it is still a valid file name.
const nameBytes = 180

// FileName returns the name of a run's files: its scheme, its place on the axes, its seed. A value of an axis may be
// any text. If characters had to be replaced or cut, the name ends in a hash of the original, so that no two runs have
// the same name.
func FileName(r *experiment.Run) string {
	parts := []string{r.Scheme}
	for _, axis := range slices.Sorted(maps.Keys(r.Point)) {
		parts = append(parts, axis+"="+r.Point[axis])
	}
	name := strings.Join(append(parts, fmt.Sprintf("seed=%d", r.Seed)), "-")
	plain := strings.Map(func(c rune) rune {
		if strings.ContainsRune(`/\: *?"<>|`, c) || c < ' ' {
			return '_'
		}
		return c
	}, name)
	if plain == name && len(name) <= nameBytes {
		return name
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name))
	return fmt.Sprintf("%s-%016x", strings.ToValidUTF8(plain[:min(len(plain), nameBytes)], ""), hash.Sum64())
}

// begin marks t = 0. Earlier packets are not part of the run.
func (o *observers) begin(t0 event.Time) {
	for _, c := range o.captures {
		c.t0 = t0
	}
	if o.trace != nil {
		o.trace.t0 = t0
	}
}

// cut returns a line for each file that was too small.
func (o *observers) cut() []string {
	var out []string
	for _, c := range o.captures {
		if c.missed > 0 {
			out = append(out, fmt.Sprintf("--pcap: the file of %s is full: it has the first %d packets, %d more passed; shorten the run", c.name, c.packets, c.missed))
		}
	}
	if o.trace != nil && o.trace.missed > 0 {
		out = append(out, fmt.Sprintf("--trace: the file is full: it has the first %d rows, %d more are missing; shorten the run", maxTraceRows, o.trace.missed))
	}
	return out
}

func (o *observers) close() error {
	var errs []error
	for _, c := range o.captures {
		errs = append(errs, c.close())
	}
	if o.trace != nil {
		errs = append(errs, o.trace.close())
	}
	return errors.Join(errs...)
}
