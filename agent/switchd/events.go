package switchd

import "sync/atomic"

// Reload results, as metrics have them.
const (
	reloadApplied = "applied"
	reloadRefused = "refused"
)

// events counts what happened to a switch since its process began. Its methods are for any goroutine.
type events struct {
	applied, refused atomic.Uint64
	lastRefused      atomic.Bool
	rollbacks        atomic.Uint64
}

// reloaded counts a change of the configuration that was asked for; err: why it was refused.
func (e *events) reloaded(err error) {
	e.lastRefused.Store(err != nil)
	if err != nil {
		e.refused.Add(1)
		return
	}
	e.applied.Add(1)
}

// rolledBack counts a canary that was taken away by its own rule.
func (e *events) rolledBack() { e.rollbacks.Add(1) }
