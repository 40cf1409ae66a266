package controller

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"weir/internal/testlog"
	"weir/openflow"
)

// A switch cannot fill the log with long error messages.
func TestLog_LongErrors(t *testing.T) {
	inBubble(t, func(b *bubble) {
		r := b.controller("a", nil)
		log := new(testlog.Log)
		r.log = slog.New(slog.NewTextHandler(log, nil))
		b.until("it is at work", func() bool { return b.serves(0) })
		const errors = 300
		m := model{id: 1, ports: 1, begun: func(p *remote) {
			for range errors {
				if p.send(0, &openflow.ErrorMessage{ErrorType: openflow.ErrorBadRequest, Data: make([]byte, 60000)}) != nil {
					return
				}
			}
		}}
		b.connect(m, "a", time.Hour)
		b.until("all errors have come", func() bool { s := r.status(b.ctx); return s != nil && s.Core.OrdersRefused == errors })
		text := log.String()
		lines := strings.Count(text, "a switch refused an order")
		if lines == 0 || lines > 30 || len(text) > 50000 {
			b.t.Errorf("%d lines about the errors, %d bytes in all", lines, len(text))
		}
	})
}

// Switches cannot fill the log by connecting again and again.
func TestLog_Churn(t *testing.T) {
	inBubble(t, func(b *bubble) {
		r := b.controller("a", nil)
		log := new(testlog.Log)
		r.log = slog.New(slog.NewTextHandler(log, nil))
		b.until("it is at work", func() bool { return b.serves(0) })
		for id := range uint64(20) {
			b.connect(model{id: id + 1, ports: 1, begun: func(p *remote) { _ = p.nc.Close() }}, "a", time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond)
		accepted := r.status(b.ctx).Peers.Accepted
		if lines := strings.Count(log.String(), "\n"); accepted < 1000 || lines > 2500 {
			b.t.Errorf("%d lines in the log about %d connections", lines, accepted)
		}
	})
}
