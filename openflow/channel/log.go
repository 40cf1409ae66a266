package channel

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
)

const (
	levelInfo = slog.LevelInfo
	levelWarn = slog.LevelWarn
)

// argBytes limits each text in a line.
const argBytes = 1000

// lines is a log that a peer cannot fill: texts are clipped, lines above the rate are counted, and the next line has their number.
type lines struct {
	log     *slog.Logger
	limit   *rate.Limiter
	all     *lines // if set, its rate holds too: for all connections together
	swallow atomic.Uint64
}

func (l *lines) say(level slog.Level, text string, args ...any) {
	if !l.limit.Allow() {
		l.swallow.Add(1)
		return
	}
	n := l.swallow.Swap(0)
	if l.all != nil {
		if !l.all.limit.Allow() {
			l.all.swallow.Add(n + 1)
			return
		}
		n += l.all.swallow.Swap(0)
	}
	clipArgs(args)
	if n > 0 {
		args = append(args, "lines_left_out", n)
	}
	l.log.Log(context.Background(), level, text, args...)
}

func clipArgs(args []any) {
	for i, a := range args {
		switch a := a.(type) {
		case string:
			args[i] = clip(a, argBytes)
		case error:
			args[i] = clip(a.Error(), argBytes)
		}
	}
}

// Log logs a line about the switch, for handlers. The line counts for Limits.LogLines and for a limit of all connections
// together, and strings and errors in args are clipped, so that peers cannot fill the log.
func (c *Conn) Log(level slog.Level, text string, args ...any) { c.log.say(level, text, args...) }

// hexID prints a datapath id as Open vSwitch does.
func hexID(id uint64) string { return fmt.Sprintf("%016x", id) }
