package park

import (
	"fmt"
	"hash/fnv"
	"path/filepath"

	"weir/datapath/reading"
)

const (
	switchOwner = "weir switch"
	// defaultSwitch is the switch whose parking has the name of the law. Those of other switches in the namespace have names of their
	// own.
	defaultSwitch = "default"
	// keepLooks is the number of calls of Keep between two readings of the queue.
	keepLooks = 4
)

// OfSwitch returns o with the name, the owner and the pins of the parking of the switch that is pinned in dir; "": it is not pinned. o.Name is the
// name for the default switch. The names of others begin with short, at most 8 bytes.
func (o Options) OfSwitch(dir, short string) Options {
	o.Owner, o.Pin = switchOwner, dir
	if dir == "" {
		return o
	}
	name := filepath.Base(dir)
	o.Owner += " " + name
	if name != defaultSwitch {
		sum := fnv.New32a()
		_, _ = sum.Write([]byte(name))
		o.Name = fmt.Sprintf("%s%06x", short, sum.Sum32()&0xffffff)
	}
	return o
}

// Keep restores the parking if packets passed recently because it is gone, or if its queue is gone. Call it with each heartbeat: most
// calls read a counter only. Until then packets pass.
func (p *Park) Keep() error {
	gone, err := p.Gone()
	if err != nil {
		return err
	}
	grown := gone != p.gone
	p.gone = gone
	p.kept++
	if !grown && p.kept%keepLooks != 0 {
		return nil
	}
	if !grown {
		if s, err := p.Stats(); err != nil || s.Queue {
			return err
		}
	}
	return p.Restore()
}

// KeepSoon calls Keep, and does not wait for it. One call runs at a time. Keep can wait for the kernel's lock of all network
// devices (RTNL), which somebody else may hold for seconds, and heartbeats must not.
func (p *Park) KeepSoon() {
	if !p.keeping.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer p.keeping.Store(false)
		_ = p.Keep() // heartbeats continue without a parking: status shows that it is missing
	}()
}

// Read returns the state of a parking in the caller's namespace, for status. A parking that cannot be read has a fault.
func Read(o Options) *reading.Parking {
	s, exists, err := Look(nil, o)
	p := &reading.Parking{
		Present: exists && s.Queue, Packets: s.BacklogPackets, Bytes: s.BacklogBytes, MostPackets: o.LimitPackets, MostBytes: o.LimitBytes,
		Parked: s.Parked, Returned: s.Returned, PassedGone: s.PassedGone, PassedFull: s.PassedFull,
		Unordered: exists && !s.FlowPerCPU, PassedMarked: s.PassedMarked + s.PassedPriority, Stale: s.Stale, Foreign: s.Foreign,
	}
	if err != nil {
		p.Fault = err.Error()
	}
	return p
}
