package testnet

import (
	"sync/atomic"
	"time"
)

// Pause measures how long this process is kept from running: by how much each of its ticks is late.
type Pause struct{ longest atomic.Int64 } // ns

// Watch measures until ended is closed.
func (p *Pause) Watch(ended <-chan struct{}) {
	const every = 10 * time.Millisecond
	for due := time.Now().Add(every); ; due = time.Now().Add(every) {
		select {
		case <-ended:
			return
		case <-time.After(every):
		}
		if late := int64(time.Since(due)); late > p.longest.Load() {
			p.longest.Store(late)
		}
	}
}

// Mark begins the measurement of Longest.
func (p *Pause) Mark() { p.longest.Store(0) }

// Longest returns the longest time since Mark that this process was kept from running.
func (p *Pause) Longest() time.Duration { return time.Duration(p.longest.Load()) }
