package controller

import (
	"encoding/binary"
	"sync"
	"time"

	"weir/law"
	"weir/law/fabric"
	"weir/openflow"
)

// If a switch refuses a flow or group for forwarding, its state differs from the law's, although it confirms later barriers. So
// its connection is ended, like that of a switch that does not confirm. The law then assumes the last confirmed state, and
// sends nothing new that way. When the switch connects again it waits, longer each time. Then all of its flows and groups are
// compared, and missing ones are sent again. A refused flow that only copies to the controller is counted and logged.
const (
	againMin  = time.Second
	againMax  = 5 * time.Minute
	againOver = 15 * time.Minute // without a refusal: then earlier ones are forgotten
)

// patience has the times at which switches that refused an order may join again.
type patience struct {
	mu sync.Mutex
	of map[law.Switch]again
}

type again struct {
	refused time.Time
	wait    time.Duration
}

// refused records a refusal, and returns how long to wait.
func (p *patience) refused(id law.Switch, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[law.Switch]again{}
	}
	for old := range p.of {
		if len(p.of) < refusedMax {
			break
		}
		delete(p.of, old)
	}
	a := p.of[id]
	if now.Sub(a.refused) >= againOver {
		a.wait = againMin / 2
	}
	a = again{now, min(2*a.wait, againMax)}
	p.of[id] = a
	return a.wait
}

// left returns how long a switch still has to wait.
func (p *patience) left(id law.Switch, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, there := p.of[id]
	if !there {
		return 0
	}
	return max(0, a.wait-now.Sub(a.refused))
}

// forwards reports whether a refused message, or its beginning, is a flow or group for forwarding.
func forwards(message []byte) bool {
	if len(message) < openflow.HeaderLen+8 {
		return false
	}
	switch openflow.Type(message[1]) {
	case openflow.TypeGroupMod:
		return true
	case openflow.TypeFlowMod:
		kind, ours := fabric.KindOf(binary.BigEndian.Uint64(message[openflow.HeaderLen:]))
		switch kind {
		case fabric.Source, fabric.Link, fabric.Pinned, fabric.HostHere, fabric.HostThere, fabric.Pass:
			return ours
		}
	}
	return false
}
