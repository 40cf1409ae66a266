package controller

import (
	"encoding/binary"
	"sync"
	"time"

	"weir/law"
	"weir/law/fabric"
	"weir/openflow"
)

// A switch that refuses a flow or group by which frames are forwarded is not as the law believes, though it confirms
// what comes after. So its connection is ended, as that of one that confirms nothing: the law then counts on what it
// did last, and sends nothing new that way. When it comes again it waits, longer each time, and is then compared whole
// and told again what it lacks. What only copies to the controller may be missing: that is counted and logged.
const (
	againMin  = time.Second
	againMax  = 5 * time.Minute
	againOver = 15 * time.Minute // without a refusal, all is forgotten
)

// patience says when switches that refused an order are told again.
type patience struct {
	mu sync.Mutex
	of map[law.Switch]again
}

type again struct {
	refused time.Time
	wait    time.Duration
}

// refused notes a refusal, and gives how long to wait.
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

// left is how long a switch has to wait yet.
func (p *patience) left(id law.Switch, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, there := p.of[id]
	if !there {
		return 0
	}
	return max(0, a.wait-now.Sub(a.refused))
}

// forwards tells whether a refused message, or its beginning, makes or changes how frames are forwarded.
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
