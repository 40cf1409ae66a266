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

// lines is a log that a peer cannot fill: lines above the rate are counted, and the next line has their number.
type lines struct {
	log     *slog.Logger
	limit   *rate.Limiter
	swallow atomic.Uint64
}

func (l *lines) say(level slog.Level, text string, args ...any) {
	if !l.limit.Allow() {
		l.swallow.Add(1)
		return
	}
	if n := l.swallow.Swap(0); n > 0 {
		args = append(args, "lines_left_out", n)
	}
	l.log.Log(context.Background(), level, text, args...)
}

// hexID prints a datapath id as Open vSwitch does.
func hexID(id uint64) string { return fmt.Sprintf("%016x", id) }
