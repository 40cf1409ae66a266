package switchd

import (
	"errors"
	"io/fs"
	"time"

	"weir/datapath/attach"
	"weir/datapath/reading"
)

// Meter reads switches repeatedly. From the second reading on it knows rates, and findings that follow from how
// counters change.
type Meter struct {
	laws   []LawKeys
	names  []string             // nil: all pinned switches
	before map[string]*snapshot // by the directory of the pins
}

// NewMeter returns a Meter of the switch with this name, or of all with "".
func (a *Agent) NewMeter(name string) (*Meter, error) {
	m := &Meter{laws: a.every()}
	if name == "" {
		return m, nil
	}
	if err := CheckName(name); err != nil {
		return nil, err
	}
	m.names = []string{name}
	return m, nil
}

// Rates are events per second between two readings.
type Rates struct {
	IntervalMs float64 `json:"interval_ms"`     // time between the readings
	Packets    float64 `json:"packets_per_s"`   // packets that left
	Rewritten  float64 `json:"rewritten_per_s"` // acknowledgements that were rewritten
	Drops      float64 `json:"drops_per_s"`     // drops of the root queue discipline and of the device together
}

// snapshot is one reading of a switch. Its counters are not read at the same instant: queues are read before the
// counters of the law and of devices, and once more after them.
type snapshot struct {
	at      time.Time
	law     string // its title
	kernel  *reading.Switch
	process process
	devices devices
	queues  attach.RootQueues // read the second time
}

// Read reads the kernel.
func (m *Meter) Read() (*Report, error) {
	names := m.names
	if names == nil {
		var err error
		if names, err = switchNames(m.laws); err != nil {
			return nil, err
		}
	}
	r := &Report{Switches: []Switch{}}
	now := map[string]*snapshot{}
	for _, name := range names {
		alive := false // a process runs one of the laws
		var former []Switch
		for i := range m.laws {
			l := &m.laws[i]
			pin, extra := l.pin(name), ""
			if i > 0 {
				extra = l.name
			}
			read, err := readSwitch(l, name)
			var other *attach.OtherSchema
			switch {
			case errors.Is(err, fs.ErrNotExist): // removed meanwhile, or the switch runs another law
			case errors.As(err, &other):
				s := Switch{Name: name, Law: extra, State: Off, Word: wordLayout, Reason: err.Error(), Ports: []Port{}}
				if isFormer(pin) {
					former = append(former, s)
				} else {
					r.Switches = append(r.Switches, s)
				}
			case err != nil:
				return nil, err
			default:
				s := describe(name, read, m.before[pin])
				s.Law = extra
				now[pin] = read
				if !read.kernel.Alive() && isFormer(pin) {
					former = append(former, *s)
					continue
				}
				alive = alive || read.kernel.Alive() || read.process.here
				r.Switches = append(r.Switches, *s)
			}
		}
		if !alive {
			r.Switches = append(r.Switches, former...)
		}
	}
	m.before = now
	return r, nil
}

// isFormer reports whether nothing but tables is pinned of a law, and no process has it: those of a switch that was stopped. If the switch
// runs other laws now, they are no part of its state.
func isFormer(pin string) bool {
	pinned, err := attach.ReadPins(pin)
	return err == nil && len(pinned.Links) == 0 && !lockHolder(pin).here
}

// Queues reads the backlog of all devices of the caller's namespace, in bytes, by ifindex.
func Queues() (map[int]uint32, error) {
	queues, err := attach.ReadRootQueues()
	if err != nil {
		return nil, err
	}
	out := map[int]uint32{}
	for ifindex := range queues {
		out[ifindex] = queues[ifindex].BacklogBytes
	}
	return out, nil
}

func readSwitch(l *LawKeys, name string) (*snapshot, error) {
	pin := l.pin(name)
	v, err := l.Law.Open(pin)
	if err != nil {
		return nil, err
	}
	defer func() { _ = v.Close() }()
	kernel, err := v.Read()
	if err != nil {
		return nil, err
	}
	r := &snapshot{law: l.title, at: time.Now(), kernel: kernel, process: lockHolder(pin)}
	local := false
	for i := range kernel.Ports {
		local = local || kernel.Ports[i].Local
	}
	if !local {
		return r, nil
	}
	if r.devices, err = readDevices(kernel.Ports); err != nil {
		return nil, err
	}
	r.queues, err = attach.ReadRootQueues()
	return r, err
}

// port returns the port with this index of a reading, or nil.
func (r *snapshot) port(id uint32) *reading.Pinned {
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

// view returns the i-th port as the checks see it.
func (r *snapshot) view(i int, before *snapshot) *view {
	k := &r.kernel.Ports[i]
	v := &view{law: r.law, k: k, sw: r.kernel, process: r.process, device: r.devices.of(k), namesake: r.devices.named(k)}
	old := before.port(k.ID)
	if old == nil || old.Ifindex != k.Ifindex {
		return v
	}
	v.recent = &change{interval: r.at.Sub(before.at)}
	v.recent.stats(&k.Stats, &old.Stats)
	if now, was := r.kernel.Parking, before.kernel.Parking; now != nil && was != nil {
		v.recent.parkingFull = since(now.PassedFull, was.PassedFull)
	}
	v.recent.oneSidedData, v.recent.oneSidedAcks = old.OneSidedData, old.OneSidedAcks
	was := before.devices.of(old)
	if !v.device.known || !was.known {
		return v
	}
	v.recent.deviceSent = since(v.device.txPackets, was.txPackets)
	v.recent.deviceDrops = since(v.device.txDropped, was.txDropped)
	v.recent.queues(old.Queue, before.queues.Of(old.Ifindex), k.Queue, r.queues.Of(k.Ifindex))
	v.recent.queue.known = v.recent.queue.known && k.NoQueue == nil
	return v
}

// queues compares the queues of two readings, each read before and after the other counters.
func (c *change) queues(first1, last1, first2, last2 attach.RootQueue) {
	for _, q := range []attach.RootQueue{last1, first2, last2} {
		if q.Anew(first1) {
			return
		}
	}
	q := &c.queue
	q.known = true
	q.drops = uint64(first2.Since(first1).Drops)
	seen := first2.Since(last1)
	q.entered = uint64(max(0, int64(seen.SentPackets)+int64(seen.Drops)+int64(seen.BacklogPackets)-int64(last1.BacklogPackets)))
	q.sent = uint64(last2.Since(first1).SentPackets)
}

// change holds what happened at a port between two readings.
type change struct {
	interval time.Duration

	oneSidedData, oneSidedAcks uint32 // flows, at the previous reading

	seen, rewritten, tunnel, tableFull uint64 // packets that the law's program saw

	queue struct {
		known   bool
		entered uint64 // packets, from the end of the first reading to the beginning of the second
		sent    uint64 // packets, from the beginning of the first reading to the end of the second
		drops   uint64
	}
	unrepaired  uint64 // segments that were dropped although losses are repaired
	parkingFull uint64 // packets of all ports that passed because the parking was full

	deviceSent, deviceDrops uint64 // as counted by the device: a GSO packet may count once
}

func (c *change) stats(now, old *reading.Stats) {
	c.seen, c.rewritten = since(now.Seen, old.Seen), since(now.Rewritten, old.Rewritten)
	c.unrepaired = unrepaired(now, old)
	c.tunnel, c.tableFull = since(now.Tunnel, old.Tunnel), since(now.TableFull, old.TableFull)
}

// since returns the increase of a counter; one that was reset started at 0.
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
