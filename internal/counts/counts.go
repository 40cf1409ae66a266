// Package counts counts refusals by reason, and keeps a flood of them from filling the log.
package counts

import (
	"log/slog"
	"maps"
	"sync"
)

// Counts are how often something happened, by reason. A few fixed texts are reasons, so peers cannot make the map grow. The
// zero value has counted nothing. Its methods may be called by several goroutines at a time.
type Counts struct {
	mu sync.Mutex
	n  map[string]uint64
}

// Add counts one more, and returns how often the reason was counted.
func (c *Counts) Add(reason string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.add(reason)
}

func (c *Counts) add(reason string) uint64 {
	if c.n == nil {
		c.n = map[string]uint64{}
	}
	c.n[reason]++
	return c.n[reason]
}

// All returns a copy, never nil.
func (c *Counts) All() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := maps.Clone(c.n)
	if out == nil {
		out = map[string]uint64{}
	}
	return out
}

// Refuse counts a refusal, and logs the first of its reason, the second, the fourth, and so on. The line is in the log before
// the count can be read.
func (c *Counts) Refuse(log *slog.Logger, text, reason string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.add(reason); n&(n-1) == 0 {
		log.Warn(text, append(args, "reason", reason, "times", n)...)
	}
}
