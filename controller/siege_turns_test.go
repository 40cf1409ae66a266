package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/law"
	"weir/law/fabric"
)

// Packets of a switch that sends few are next, however many others have thousands waiting, and however long each
// of theirs takes.
func TestTurns(t *testing.T) {
	turns := newTurns()
	frame := make([]byte, 60)
	var noisy []*session
	for i := range 50 {
		s := &session{id: law.Switch(i)}
		for n := range 5000 {
			if ok := turns.may(s, fabric.PacketIn{Frame: frame}); ok != (n < framesPerSwitch) {
				t.Fatalf("packet %d: taken %v", n, ok)
			}
		}
		noisy = append(noisy, s)
	}
	served := map[*session]time.Duration{}
	cost := func(s *session) time.Duration { return time.Duration(1+s.id) * time.Microsecond }
	step := func() *session {
		s, e, ok := turns.next()
		if !ok {
			t.Fatal("nothing waits")
		}
		turns.spent(s, e, cost(s))
		served[s] += cost(s)
		turns.may(s, fabric.PacketIn{Frame: frame}) // more of the same
		return s
	}
	for range 20000 {
		step()
	}
	quiet := &session{id: 1000}
	if !turns.may(quiet, fabric.PacketIn{Frame: frame}) {
		t.Fatal("not taken")
	}
	s, e, _ := turns.next()
	if s != quiet {
		t.Error("a switch that had sent nothing waits for others")
	}
	least, longest := served[noisy[0]], served[noisy[0]]
	for _, s := range noisy {
		least, longest = min(least, served[s]), max(longest, served[s])
	}
	if longest > least+3*turn {
		t.Errorf("the laws worked %v for one switch and %v for another", longest, least)
	}
	// One that was served while the processor was away for a second is not kept from it for long.
	turns.spent(quiet, e, time.Second)
	turns.may(quiet, fabric.PacketIn{Frame: frame})
	for n := 0; step() != quiet; n++ {
		if n > 12*50*int(turn/time.Microsecond) {
			t.Fatal("it waits for ever")
		}
	}
	// Events that must not be lost come before packets, and probes before other packets.
	for _, e := range []fabric.PacketIn{{Frame: frame}, {Kind: fabric.Probe, Frame: frame}} {
		turns.may(quiet, e)
	}
	turns.must(quiet, &fabric.Left{})
	var order []string
	for len(order) < 3 {
		s, e, _ := turns.next()
		if s == quiet {
			order = append(order, fmt.Sprintf("%T", e))
			if p, is := e.(*fabric.PacketIn); is {
				order[len(order)-1] = p.Kind.String()
			}
		}
		turns.spent(s, e, turn)
	}
	if want := []string{"*fabric.Left", "probe", "other"}; !slices.Equal(order, want) {
		t.Errorf("%q, should be %q", order, want)
	}
	// Probes have room next to any number of other packets, which do not use theirs.
	full, probe := noisy[0], fabric.PacketIn{Kind: fabric.Probe, Frame: frame}
	for turns.may(full, fabric.PacketIn{Frame: frame}) {
	}
	for n := range probesPerSwitch + 1 {
		if got := turns.may(full, probe); got != (n < probesPerSwitch) {
			t.Fatalf("probe %d: taken %v", n, got)
		}
	}
	long := &session{id: 1002}
	turns.may(long, fabric.PacketIn{Kind: fabric.Probe, Frame: make([]byte, 65000)})
	if n := len(long.box.probes.pop().Frame); n != probeBytes {
		t.Errorf("%d bytes of a probe wait", n)
	}
	big := &session{id: 1001}
	for turns.may(big, fabric.PacketIn{Frame: make([]byte, 65000)}) {
	}
	if big.box.bytes > bytesPerSwitch {
		t.Errorf("%d bytes wait", big.box.bytes)
	}
}

// A switch whose event took long, because this process did not run meanwhile, is served again one round after debtMax. A round can
// take seconds on a machine that is busy with other work, and probes that wait for ten rounds would take links down.
func TestTurnsDebtLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		in := fabric.PacketIn{Frame: make([]byte, 60)}
		const others = 50
		for i := range others {
			turns.may(&session{id: law.Switch(i)}, in)
		}
		quiet := &session{id: 1000}
		turns.may(quiet, in)
		for {
			s, e, _ := turns.next()
			turns.may(s, in)
			if s == quiet {
				turns.spent(s, e, time.Minute)
				break
			}
			turns.spent(s, e, turn)
		}
		// Each event of the others uses up a turn, so a round is one event of each of them.
		wait := func() (rounds int) {
			for n := 0; ; n++ {
				s, e, _ := turns.next()
				turns.may(s, in)
				if s == quiet {
					turns.spent(s, e, time.Minute)
					return n / others
				}
				turns.spent(s, e, turn)
			}
		}
		if rounds := wait(); rounds < 8 {
			t.Errorf("a switch that used ten turns is served after %d rounds of the others", rounds)
		}
		time.Sleep(debtMax)
		if rounds := wait(); rounds > 2 {
			t.Errorf("a debt that is %v old lasts %d rounds", debtMax, rounds)
		}
	})
}

// A peer waits if it sends messages that must not be lost faster than the laws work. Other peers do not wait.
func TestTurnsWait(t *testing.T) {
	turns := newTurns()
	a, b := &session{id: 1}, &session{id: 2}
	var sent sync.WaitGroup
	sent.Go(func() {
		for range 3 * urgentPerSwitch {
			turns.must(a, &fabric.Left{Switch: 1})
		}
	})
	turns.must(b, &fabric.Left{Switch: 2})
	for got := map[*session]int{}; got[a] < 3*urgentPerSwitch || got[b] < 1; {
		if a.box.waiting(turns) > urgentPerSwitch {
			t.Fatal("more wait than may")
		}
		if s, _, ok := turns.next(); ok {
			got[s]++
		} else {
			<-turns.wake
		}
	}
	sent.Wait()
	sent.Go(func() {
		for range 2 * urgentPerSwitch {
			turns.must(a, &fabric.Left{Switch: 1})
		}
	})
	turns.end() // a controller that has ended delays nobody
	sent.Wait()
}

func (b *mailbox) waiting(t *turns) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return b.urgent.len()
}

// Refusals of peers with ever new names are not all remembered.
func TestRefusedIsBounded(t *testing.T) {
	c := newCore(newFence(nil, 1, nil), nil)
	for id := range law.Switch(10 * refusedMax) {
		c.refuse(id, context.DeadlineExceeded)
	}
	if len(c.refused) != refusedMax || c.refused[10*refusedMax-1] == "" {
		t.Errorf("%d are remembered", len(c.refused))
	}
}
