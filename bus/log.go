package bus

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// natsLog passes the server's messages on. Peers without a certificate cause some of them, so lines above the rate are counted,
// and the next line has their number.
type natsLog struct {
	log     *slog.Logger
	limit   *rate.Limiter
	leftOut atomic.Uint64
	fatal   chan string // the first fault after which the server does not work
}

func newNATSLog(log *slog.Logger) *natsLog {
	return &natsLog{log: log, limit: rate.NewLimiter(20, 200), fatal: make(chan string, 1)}
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
func (l *natsLog) Debugf(string, ...any)           {}
func (l *natsLog) Tracef(string, ...any)           {}

func (l *natsLog) Fatalf(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	l.log.Error("bus: " + text)
	select {
	case l.fatal <- text:
	default:
	}
}
