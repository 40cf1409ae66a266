package park

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
)

const (
	rootHandle = 0x50580000 // PARK_HANDLE of bpf/lib/park.h
	// Added to the handle of a class: those of its packets that are held.
	holdingHandle = 0x1000 // the parent of the next two
	heldHandle    = 0x2000 // PARK_HELD
	firstHandle   = 0x3000 // PARK_FIRST: sends before heldHandle
	keepingHandle = 0x4000 // the parent of the next two
	keptHandle    = 0x5000 // PARK_KEPT
	againHandle   = 0x6000 // PARK_KEPT_AGAIN: sends before keptHandle
	// The rate of packets that are held, as a part of the class's rate, and the largest. A packet that is held counts for
	// 200 bytes (its law asks for this cost), so it is looked at every 25 us at most.
	heldPart   = 8
	heldMax    = 64_000_000
	leafLeast  = 8000 // bit/s, of a class that borrows what it sends
	burstLeast = 1600 // bytes: a frame
	// quantum is what a class sends before the next has its turn, in bytes. HTB needs it only among classes that may all
	// send; its own choice grows with the rate, and is logged as a fault for large rates.
	quantum = 1600

	drainLimit = 200 * time.Millisecond
	flushLimit = 150 * time.Millisecond
	drainLook  = time.Millisecond
	// behindLimit is far more than a packet needs from the queue to the program at the far end.
	behindLimit = 10 * time.Millisecond
)

const defaultKept = 200 * time.Microsecond

// class is the rate of a port's packets, in bit/s, and their bursts.
type class struct {
	bps uint64
	Bursts
}

func (p *Park) createRoot() error {
	htb := netlink.NewHtb(netlink.QdiscAttrs{
		LinkIndex: p.in.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: rootHandle,
	})
	if err := p.net.QdiscAdd(htb); err != nil {
		return fmt.Errorf("put HTB on %s (it needs CONFIG_NET_SCH_HTB): %w", p.in.Attrs().Name, err)
	}
	return nil
}

// setClass makes the class of a port, or changes its rate. After a change HTB waits once more for the end of what it has
// sent at the old rate.
func (p *Park) setClass(id uint32, of class) error {
	bps := of.bps
	held := max(min(bps/heldPart, heldMax), leafLeast)
	paced, kept := burstOf(bps, cmp.Or(of.Paced, p.o.Burst)), burstOf(bps, cmp.Or(of.Kept, defaultKept))
	for _, c := range []struct {
		parent, handle uint32
		rate, ceil     uint64
		burst, prio    uint32
	}{
		{rootHandle, rootHandle + id + 1, bps, bps, paced, 0},
		{rootHandle, rootHandle + keepingHandle + id + 1, bps, bps, kept, 0},
		{rootHandle + keepingHandle + id + 1, rootHandle + keptHandle + id + 1, leafLeast, bps, kept, 1},
		{rootHandle + keepingHandle + id + 1, rootHandle + againHandle + id + 1, leafLeast, bps, kept, 0},
		{rootHandle, rootHandle + holdingHandle + id + 1, held, held, burstLeast, 0},
		{rootHandle + holdingHandle + id + 1, rootHandle + heldHandle + id + 1, leafLeast, held, burstLeast, 1},
		{rootHandle + holdingHandle + id + 1, rootHandle + firstHandle + id + 1, leafLeast, held, burstLeast, 0},
	} {
		class := netlink.NewHtbClass(
			netlink.ClassAttrs{LinkIndex: p.in.Attrs().Index, Parent: c.parent, Handle: c.handle},
			netlink.HtbClassAttrs{Rate: c.rate, Ceil: c.ceil, Buffer: c.burst, Cbuffer: c.burst, Quantum: quantum, Prio: c.prio},
		)
		if err := p.net.ClassReplace(class); err != nil {
			return fmt.Errorf("set class %x at %s to %d bit/s: %w", c.handle, p.in.Attrs().Name, bps, err)
		}
	}
	p.classes[id] = of
	return nil
}

// burstOf returns what a class with this rate, in bit/s, may send at once in bytes.
func burstOf(bps uint64, burst time.Duration) uint32 {
	return uint32(min(max(float64(bps)/8*burst.Seconds(), burstLeast), math.MaxInt32))
}

// listClasses returns the classes of the ids that have one, without their bursts.
func (p *Park) listClasses() (map[uint32]class, error) {
	list, err := attach.Again(netlink.ErrDumpInterrupted, func() ([]netlink.Class, error) {
		return p.net.ClassList(p.in, 0)
	})
	if err != nil {
		return nil, fmt.Errorf("list the classes of %s: %w", p.in.Attrs().Name, err)
	}
	ids := map[uint32]class{}
	for _, c := range list {
		htb, ok := c.(*netlink.HtbClass)
		if ok && htb.Handle > rootHandle && htb.Handle <= rootHandle+Ports {
			ids[htb.Handle-rootHandle-1] = class{bps: htb.Rate * 8}
		}
	}
	return ids, nil
}

// backlog reads what waits. has reports whether HTB is there.
func (p *Park) backlog() (bytes, packets uint32, has bool, err error) {
	list, err := attach.Again(netlink.ErrDumpInterrupted, func() ([]netlink.Qdisc, error) { return p.net.QdiscList(p.in) })
	if err != nil {
		return 0, 0, false, fmt.Errorf("read the queue of %s: %w", p.in.Attrs().Name, err)
	}
	for _, q := range list {
		a := q.Attrs()
		if a.Handle != rootHandle || a.Statistics == nil || a.Statistics.Queue == nil {
			continue
		}
		return a.Statistics.Queue.Backlog, a.Statistics.Queue.Qlen, true, nil
	}
	return 0, 0, false, nil
}

// drain lets no more packets in and waits until those that wait have left.
func (p *Park) drain() error {
	if err := p.refuse(); err != nil {
		return err
	}
	empty, err := p.await(drainLimit)
	if err != nil || empty {
		return err
	}
	ids, err := p.listClasses()
	if err != nil {
		return err
	}
	for id := range ids {
		if err := p.setClass(id, class{bps: rateMax}); err != nil {
			return err
		}
	}
	_, err = p.await(flushLimit)
	return err
}

// await waits until the queue is empty and every packet has passed the far end, for as long as limit. Packets that left the
// queue and that the kernel lost are awaited for a moment only.
func (p *Park) await(limit time.Duration) (empty bool, err error) {
	var emptyAt time.Time
	for end := time.Now().Add(limit); ; time.Sleep(drainLook) {
		_, waiting, has, err := p.backlog()
		if err != nil {
			return false, err
		}
		now := time.Now()
		switch {
		case !has: // nor is the device
			return true, nil
		case waiting != 0:
			emptyAt = time.Time{}
		case p.underWay() == 0:
			return true, nil
		case emptyAt.IsZero():
			emptyAt = now
		case now.Sub(emptyAt) > behindLimit:
			return true, nil
		}
		if now.After(end) {
			return false, nil
		}
	}
}
