package switchd

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/vishvananda/netlink"

	"weir/datapath"
)

// Meter reads switches again and again: from its second reading on, rates are known, and what only shows
// in counters that move or stand still.
type Meter struct {
	names  []string // nil: all that are pinned
	before map[string]*reading
}

// NewMeter reads the switch with this name, or all when it is "".
func NewMeter(name string) (*Meter, error) {
	m := &Meter{}
	if name == "" {
		return m, nil
	}
	if err := CheckName(name); err != nil {
		return nil, err
	}
	m.names = []string{name}
	return m, nil
}

// Rates are what happened between two readings, a second.
type Rates struct {
	IntervalMs float64 `json:"interval_ms"` // between the readings
	Packets    float64 `json:"packets_per_s"`
	Rewritten  float64 `json:"rewritten_per_s"`
	Drops      float64 `json:"drops_per_s"` // of the root queue discipline and of the device together
}

// reading is what is known of a switch at one moment.
type reading struct {
	at      time.Time
	kernel  *datapath.FairQSwitch
	process process
	devices devices
	notes   map[uint32]string // by a port's number in the tables
}

// Read reads the kernel.
func (m *Meter) Read() (*Report, error) {
	names := m.names
	if names == nil {
		var err error
		if names, err = SwitchNames(); err != nil {
			return nil, err
		}
	}
	r := &Report{Switches: []Switch{}}
	now := map[string]*reading{}
	for _, name := range names {
		read, err := readSwitch(name)
		var other *datapath.OtherSchema
		switch {
		case errors.Is(err, fs.ErrNotExist): // gone this moment
		case errors.As(err, &other):
			r.Switches = append(r.Switches, Switch{Name: name, State: Off, Word: wordLayout, Reason: err.Error(), Ports: []Port{}})
		case err != nil:
			return nil, err
		default:
			r.Switches = append(r.Switches, *describe(name, read, m.before[name]))
			now[name] = read
		}
	}
	m.before = now
	return r, nil
}

// Queues reads the queues of all devices of the caller's namespace now, in bytes, by ifindex, and nothing
// else.
func Queues() (map[int]uint32, error) {
	qdiscs, err := netlink.QdiscList(nil)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list queue disciplines: %w", err)
	}
	out := map[int]uint32{}
	for _, q := range qdiscs {
		a := q.Attrs()
		if a.Parent == netlink.HANDLE_ROOT && a.Statistics != nil && a.Statistics.Queue != nil {
			out[a.LinkIndex] = a.Statistics.Queue.Backlog
		}
	}
	return out, nil
}

func readSwitch(name string) (*reading, error) {
	v, err := datapath.OpenFairQ(pinDir(name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = v.Close() }()
	kernel, err := v.Read()
	if err != nil {
		return nil, err
	}
	r := &reading{at: time.Now(), kernel: kernel, process: lockHolder(pinDir(name)), notes: map[uint32]string{}}
	local := false
	for i := range kernel.Ports {
		p := &kernel.Ports[i]
		local = local || p.Local
		if p.Hold != datapath.FairQHoldAll {
			if r.notes[p.ID], err = v.Note(p.ID); err != nil {
				return nil, err
			}
		}
	}
	if local {
		r.devices, err = readDevices(kernel.Ports)
	}
	return r, err
}

// port is what a reading has of the port with this number; nil: nothing.
func (r *reading) port(id uint32) *datapath.FairQPinned {
	if r == nil {
		return nil
	}
	for i := range r.kernel.Ports {
		if r.kernel.Ports[i].ID == id {
			return &r.kernel.Ports[i]
		}
	}
	return nil
}

// view is the i-th port as the checks see it.
func (r *reading) view(i int, before *reading) *view {
	k := &r.kernel.Ports[i]
	v := &view{k: k, sw: r.kernel, process: r.process, device: r.devices.of(k), namesake: r.devices.named(k), note: r.notes[k.ID]}
	old := before.port(k.ID)
	if old == nil || old.Ifindex != k.Ifindex {
		return v
	}
	v.recent = &change{interval: r.at.Sub(before.at)}
	v.recent.stats(&k.FairQStats, &old.FairQStats)
	was := before.devices.of(old)
	if !v.device.known || !was.known || old.Queue.Kind != k.Queue.Kind || k.Queue.SentPackets < old.Queue.SentPackets {
		return v // another queue counts from 0
	}
	q := &v.recent.queue
	q.known = k.NoQueue == nil
	q.sent = uint64(k.Queue.SentPackets - old.Queue.SentPackets)
	q.drops = since(uint64(k.Queue.Drops), uint64(old.Queue.Drops))
	q.entered = uint64(max(0, int64(q.sent+q.drops)+int64(k.Queue.BacklogPackets)-int64(old.Queue.BacklogPackets)))
	v.recent.deviceSent = since(v.device.txPackets, was.txPackets)
	v.recent.deviceDrops = since(v.device.txDropped, was.txDropped)
	return v
}

// change is what happened at a port between two readings.
type change struct {
	interval time.Duration

	seen, rewritten, tunnel, tableFull uint64 // packets at FairQ's program

	queue struct {
		known                bool
		entered, sent, drops uint64 // packets
	}
	deviceSent, deviceDrops uint64 // packets, as the device has them: a large one may count once
}

func (c *change) stats(now, old *datapath.FairQStats) {
	c.seen, c.rewritten = since(now.Seen, old.Seen), since(now.Rewritten, old.Rewritten)
	c.tunnel, c.tableFull = since(now.Tunnel, old.Tunnel), since(now.TableFull, old.TableFull)
}

// since is how far a counter went; one that began anew went from 0.
func since(now, old uint64) uint64 {
	if now < old {
		return now
	}
	return now - old
}

func (c *change) rates() *Rates {
	if c == nil || c.interval <= 0 {
		return nil
	}
	per := func(n uint64) float64 { return float64(n) / c.interval.Seconds() }
	return &Rates{
		IntervalMs: milliseconds(c.interval), Packets: per(c.seen), Rewritten: per(c.rewritten),
		Drops: per(c.queue.drops + c.deviceDrops),
	}
}
