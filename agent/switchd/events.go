package switchd

import "sync/atomic"

// Results of a reload, as the metrics show them.
const (
	reloadApplied = "applied"
	reloadRefused = "refused"
)

// events counts events of a switch since its process began. Its methods are safe for concurrent use.
type events struct {
	applied, refused atomic.Uint64
	lastRefused      atomic.Bool
	rollbacks        atomic.Uint64
}

// reloaded counts a requested change of the configuration; err is the reason if it was refused.
func (e *events) reloaded(err error) {
	e.lastRefused.Store(err != nil)
	if err != nil {
		e.refused.Add(1)
		return
	}
	e.applied.Add(1)
}

// rolledBack counts a canary that a rule of the configuration stopped.
func (e *events) rolledBack() { e.rollbacks.Add(1) }
