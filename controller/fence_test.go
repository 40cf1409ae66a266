package controller

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/openflow"
)

// Controllers pause for any time between taking the lease and drawing the generation id. In the end one of them is active, with
// the highest id, and has all switches. Without the fence one could keep the lease for ever with an id below another's, and no
// switch could join.
func TestFence_PauseBeforeDraw(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				var mu sync.Mutex
				rng := rand.New(rand.NewPCG(seed, 1))
				pauses := 6 // of all controllers; then they are well
				pause := func() {
					mu.Lock()
					if pauses == 0 {
						mu.Unlock()
						return
					}
					pauses--
					d := leaseStale/2 + time.Duration(rng.Int64N(int64(2*leaseStale)))
					mu.Unlock()
					time.Sleep(d) // of the bubble's clock
				}
				for _, name := range []string{"a", "b", "c"} {
					b.controller(name, pause)
				}
				for id := range uint64(2) {
					e := new(elector)
					for name := range b.doors {
						b.connect(model{id: 1 + id, ports: 1, role: e.role}, name, time.Second)
					}
				}
				// It stays so, longer than any pause lasts.
				var at *term
				var since time.Time
				b.until("one controller has all switches, and keeps them", func() bool {
					if !b.serves(2) {
						at = nil
					} else if now := b.active().term.Load(); now != at {
						at, since = now, time.Now()
					}
					return at != nil && time.Since(since) > 4*leaseStale
				})
			})
		})
	}
}

// The case in which it was found: one takes the lease and pauses, the other replaces it and draws, then the first one
// draws the higher id. It has lost the lease; the other has it, and the lower id.
func TestFence_HigherDrawWithoutLease(t *testing.T) {
	inBubble(t, func(b *bubble) {
		hold := make(chan struct{})
		var draws atomic.Int64
		a := b.controller("a", func() {
			if draws.Add(1) == 1 {
				<-hold
			}
		})
		synctest.Wait() // it has the lease
		other := b.controller("b", nil)
		e := new(elector)
		for name := range b.doors {
			b.connect(model{id: 1, ports: 1, role: e.role}, name, time.Second)
		}
		b.until("b has replaced a and has the switch", func() bool { return b.serves(1) && b.active() == other })
		was := other.term.Load()
		close(hold)
		b.until("the id in the file is b's again", func() bool { return b.serves(1) && b.active().term.Load() != was })
		if s := b.active().status(b.ctx); s.Generation != 3 || a.term.Load() != nil && other.term.Load() != nil {
			b.t.Errorf("generation id %d: 1 is b's, 2 a's, 3 was to be drawn then", s.Generation)
		}
	})
}

// An id in the file above ours ends the term also when it is a join that finds it, before the next look.
func TestFence_JoinFindsHigherID(t *testing.T) {
	inBubble(t, func(b *bubble) {
		r := b.controller("a", nil)
		b.until("it is at work", func() bool { return b.serves(0) })
		was := r.term.Load()
		b.write(70)
		e := new(elector)
		b.connect(model{id: 1, ports: 1, role: e.role}, "a", time.Second)
		b.until("the switch has joined", func() bool { return b.serves(1) })
		if s := r.status(b.ctx); s.Generation != 71 || r.term.Load() == was || s.Raises != 0 {
			b.t.Errorf("generation id %d, %d raises, wanted a new term with 71", s.Generation, s.Raises)
		}
	})
}

// The generation file was lost, or came from a backup: switches that know a higher id join after some time, and those
// that have joined notice nothing.
func TestFence_SwitchKnowsHigherID(t *testing.T) {
	inBubble(t, func(b *bubble) {
		r := b.controller("a", nil)
		first, second := new(elector), &elector{generation: 5*raiseStep + 7, has: true}
		b.connect(model{id: 1, ports: 1, role: first.role}, "a", time.Second)
		b.until("it is at work", func() bool { return b.serves(1) })
		was := r.term.Load()
		b.connect(model{id: 2, ports: 1, role: second.role}, "a", time.Second)
		b.until("both switches have joined", func() bool { return b.serves(2) })
		s := r.status(b.ctx)
		if r.term.Load() != was || first.masters != 1 || s.Generation != 5*raiseStep+8 || s.Raises != 6 {
			b.t.Errorf("the same term: %v; %d joins of the first; generation id %d after %d raises", r.term.Load() == was, first.masters, s.Generation, s.Raises)
		}
		if err := r.store.Check(s.Generation - 1); err == nil {
			b.t.Error("the raised id is not in the file")
		}
	})
}

// A switch that lies about the id that it knows stops nobody: honest switches stay, others join, the term goes on, and the
// id goes up by no more than raiseStep a second.
func TestFence_LyingSwitch(t *testing.T) {
	inBubble(t, func(b *bubble) {
		r := b.controller("a", nil)
		honest := new(elector)
		b.connect(model{id: 1, ports: 1, role: honest.role}, "a", time.Second)
		b.until("it is at work", func() bool { return b.serves(1) })
		was, begun := r.term.Load(), time.Now()
		rng := rand.New(rand.NewPCG(1, 1))
		var mu sync.Mutex
		lie := func() uint64 {
			mu.Lock()
			defer mu.Unlock()
			near := r.term.Load().core.fence
			ours, _ := near.now()
			return []uint64{ours + 1, ours + 1<<62, ours + 1<<63 - 1, ours + 1<<63, ours + 1<<63 + 1, ^uint64(0), ^uint64(0) - 1, 0, rng.Uint64()}[rng.IntN(9)]
		}
		var refused atomic.Int64
		for id := range uint64(4) {
			b.connect(model{id: 10 + id, ports: 1, role: func(q *openflow.RoleRequest) openflow.Message {
				if q.Role == openflow.RoleNoChange {
					return &openflow.RoleReply{Role: openflow.RoleSlave, GenerationID: lie()}
				}
				refused.Add(1)
				return refusedRole(openflow.CodeRoleStale)
			}}, "a", 100*time.Millisecond)
		}
		time.Sleep(time.Minute)
		later := &elector{generation: 1000, has: true}
		b.connect(model{id: 2, ports: 1, role: later.role}, "a", time.Second)
		b.until("another honest switch has joined", func() bool { return b.serves(2) })
		s := r.status(b.ctx)
		if most := raiseStep * uint64(2+time.Since(begun)/raiseEvery); s.Generation > most || s.Raises == 0 || refused.Load() < 1000 {
			b.t.Errorf("generation id %d, at most %d; %d raises, %d refusals", s.Generation, most, s.Raises, refused.Load())
		}
		if r.term.Load() != was || honest.masters != 1 {
			b.t.Errorf("the same term: %v; the honest switch joined %d times", r.term.Load() == was, honest.masters)
		}
		if s.Peers.Ended["stale"] < 1000 {
			b.t.Errorf("ended: %v", s.Peers.Ended)
		}
	})
}

// A file that is gone, or cannot be read, does not end a term.
func TestFence_FileLost(t *testing.T) {
	inBubble(t, func(b *bubble) {
		r := b.controller("a", nil)
		e := new(elector)
		b.connect(model{id: 1, ports: 1, role: e.role}, "a", time.Second)
		b.until("it is at work", func() bool { return b.serves(1) })
		was := r.term.Load()
		b.lose()
		time.Sleep(10 * leaseEvery)
		if r.term.Load() != was || !b.serves(1) {
			b.t.Error("the term has ended")
		}
	})
}
