package bus

import (
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// counts are how often something happened, by reason. A few fixed texts are reasons, so peers cannot make the map grow.
type counts struct {
	mu sync.Mutex
	n  map[string]uint64
}

// add counts one more, and returns how often the reason was counted.
func (c *counts) add(reason string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]uint64{}
	}
	c.n[reason]++
	return c.n[reason]
}

func (c *counts) all() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

// refuse counts a refusal, and logs the first of its reason, the second, the fourth, and so on: a flood must not fill the log.
func (c *counts) refuse(log *slog.Logger, text, reason string, args ...any) {
	if n := c.add(reason); n&(n-1) == 0 {
		log.Warn(text, append(args, "reason", reason, "times", n)...)
	}
}

// natsLog passes the server's messages on. Peers without a certificate cause some of them, so lines above the rate are counted,
// and the next line has their number.
type natsLog struct {
	log     *slog.Logger
	limit   *rate.Limiter
	leftOut atomic.Uint64
}

func newNATSLog(log *slog.Logger) *natsLog {
	return &natsLog{log: log, limit: rate.NewLimiter(20, 200)}
}

func (l *natsLog) warn(format string, a []any) {
	if !l.limit.Allow() {
		l.leftOut.Add(1)
		return
	}
	var args []any
	if n := l.leftOut.Swap(0); n > 0 {
		args = append(args, "lines_left_out", n)
	}
	l.log.Warn("bus: "+fmt.Sprintf(format, a...), args...)
}

func (l *natsLog) Noticef(format string, a ...any) { l.log.Debug(fmt.Sprintf(format, a...)) }
func (l *natsLog) Warnf(format string, a ...any)   { l.warn(format, a) }
func (l *natsLog) Errorf(format string, a ...any)  { l.warn(format, a) }
func (l *natsLog) Fatalf(format string, a ...any)  { l.log.Error("bus: " + fmt.Sprintf(format, a...)) }
func (l *natsLog) Debugf(string, ...any)           {}
func (l *natsLog) Tracef(string, ...any)           {}
