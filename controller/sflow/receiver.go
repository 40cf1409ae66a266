package sflow

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"weir/internal/counts"
	"weir/law"
	"weir/law/telemetry"
)

// Limits of the tables of a switch, and of what a datagram may say.
const (
	maxPorts     = 1024
	maxSubAgents = 16
	maxSources   = telemetry.MaxVMs // addresses of a port between two readings
	maxRate      = 1 << 24          // packets per sample

	// older is how far a sequence number may be behind the last one. Further behind, the switch began anew.
	older = 1024
)

// Switch is a switch that may send.
type Switch struct {
	Address netip.Addr // that its datagrams come from
	Number  law.Switch // in readings
	// Ports are the interfaces (ifIndex) by which packets with CE must come in to be counted; nil: all. A packet that two switches
	// sample must count at one of them only.
	Ports []uint32
}

// Receiver collects what switches send. Its methods may be called by several goroutines at a time.
type Receiver struct {
	log     *slog.Logger
	refused counts.Counts

	mu       sync.Mutex
	switches map[netip.Addr]*source
	order    []*source
	counts   Counts
}

// Counts is what came.
type Counts struct {
	Datagrams uint64 `json:"datagrams"` // taken
	Lost      uint64 `json:"lost"`      // datagrams, by their sequence numbers
	Samples   uint64 `json:"samples"`   // of packets
	Marked    uint64 `json:"marked"`    // of Samples: with CE, by a port that counts
	Counters  uint64 `json:"counters"`  // of interfaces
	// Refused counts datagrams, samples and counters without effect, by reason: sender, malformed, old, subagents, ports, rate, claimed.
	Refused map[string]uint64 `json:"refused"`
}

// All returns the counts by name, with those of Refused as refused_REASON.
func (c *Counts) All() map[string]uint64 {
	out := map[string]uint64{"datagrams": c.Datagrams, "lost": c.Lost, "samples": c.Samples, "marked": c.Marked, "counters": c.Counters}
	for reason, n := range c.Refused {
		out["refused_"+reason] = n
	}
	return out
}

// source is the state of a switch.
type source struct {
	Switch
	streams map[uint32]stream // by sub-agent
	ports   map[uint32]*port
	list    []uint32 // keys of ports, ascending
}

type stream struct{ sequence, uptimeMs uint32 }

// port is the state of an interface.
type port struct {
	last  *counters // nil: none came yet
	marks map[netip.Addr]uint64
	rest  uint64 // marks of further addresses
	now   telemetry.Port
	news  bool
}

// New returns a receiver for these switches, whose addresses differ. log may be nil.
func New(switches []Switch, log *slog.Logger) *Receiver {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &Receiver{log: log, switches: map[netip.Addr]*source{}}
	for _, s := range switches {
		of := &source{Switch: s, streams: map[uint32]stream{}, ports: map[uint32]*port{}}
		r.switches[s.Address] = of
		r.order = append(r.order, of)
	}
	return r
}

// Counts returns what came so far.
func (r *Receiver) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts
	c.Refused = r.refused.All()
	return c
}

// Refuse counts something without effect.
func (r *Receiver) Refuse(reason string, err error) {
	r.refused.Refuse(r.log, "sFlow is refused", reason, "error", err)
}

// Take takes a datagram.
func (r *Receiver) Take(from netip.Addr, b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.switches[from.Unmap()]
	if s == nil {
		r.Refuse("sender", fmt.Errorf("%v is not in sflow.switches", from))
		return
	}
	if err := decode(b, &visit{r, s}); err != nil {
		r.Refuse("malformed", fmt.Errorf("%v: %w", from, err))
	}
}

// visit takes the parts of a datagram. The caller holds mu.
type visit struct {
	r *Receiver
	s *source
}

func (v *visit) begin(d *datagram) bool {
	was, known := v.s.streams[d.subAgent]
	switch behind := was.sequence - d.sequence; {
	case !known && len(v.s.streams) >= maxSubAgents:
		v.r.Refuse("subagents", fmt.Errorf("%v: more than %d sub-agents", v.s.Address, maxSubAgents))
		return false
	case known && behind < older && d.uptimeMs >= was.uptimeMs-min(was.uptimeMs, older):
		v.r.Refuse("old", fmt.Errorf("%v: datagram %d after %d", v.s.Address, d.sequence, was.sequence))
		return false
	case known && d.sequence > was.sequence:
		v.r.counts.Lost += uint64(d.sequence - was.sequence - 1)
	}
	v.s.streams[d.subAgent] = stream{d.sequence, d.uptimeMs}
	v.r.counts.Datagrams++
	return true
}

func (v *visit) packet(p *packet) {
	v.r.counts.Samples++
	source, ok := marked(p.header)
	if !ok || v.s.Ports != nil && !slices.Contains(v.s.Ports, p.input) {
		return
	}
	if p.rate == 0 || p.rate > maxRate {
		v.r.Refuse("rate", fmt.Errorf("%v: one of %d packets, want 1 to %d", v.s.Address, p.rate, maxRate))
		return
	}
	at := v.port(p.input)
	if at == nil {
		return
	}
	v.r.counts.Marked++
	at.news = true
	at.now.Marks.Packets += uint64(p.rate)
	if _, known := at.marks[source]; !known && len(at.marks) >= maxSources {
		at.rest += uint64(p.rate)
		return
	}
	at.marks[source] += uint64(p.rate)
}

func (v *visit) counters(c *counters) {
	v.r.counts.Counters++
	at := v.port(c.index)
	if at == nil {
		return
	}
	was := at.last
	at.last = c
	if was == nil || c.outBytes < was.outBytes { // the first, or the switch began anew
		return
	}
	sent := uint64(c.outUnicast-was.outUnicast) + uint64(c.outMulticast-was.outMulticast) + uint64(c.outBroadcast-was.outBroadcast)
	drops := uint64(c.outDiscards - was.outDiscards) // 32 bits: they begin anew
	at.news = true
	at.now.SentBytes += c.outBytes - was.outBytes
	at.now.Bytes += c.outBytes - was.outBytes
	at.now.Packets += sent + drops
	at.now.Drops += drops
}

// port returns the state of an interface; nil: there are too many.
func (v *visit) port(n uint32) *port {
	at := v.s.ports[n]
	if at == nil {
		if len(v.s.ports) >= maxPorts {
			v.r.Refuse("ports", fmt.Errorf("%v: more than %d interfaces", v.s.Address, maxPorts))
			return nil
		}
		at = &port{marks: map[netip.Addr]uint64{}}
		v.s.ports[n] = at
		i, _ := slices.BinarySearch(v.s.list, n)
		v.s.list = slices.Insert(v.s.list, i, n)
	}
	return at
}

// Readings calls each for every switch with what came since the last call, t ago. vmAt returns the VM of an address, 0 for none. The
// reading is borrowed until each returns.
func (r *Receiver) Readings(t time.Duration, vmAt func(netip.Addr) law.VM, each func(*telemetry.Telemetry)) {
	r.mu.Lock()
	var out []*telemetry.Telemetry
	for _, s := range r.order {
		if e := s.reading(t, vmAt); e != nil {
			out = append(out, e)
		}
	}
	r.mu.Unlock()
	for _, e := range out {
		each(e)
	}
}

// reading returns nil if nothing came.
func (s *source) reading(t time.Duration, vmAt func(netip.Addr) law.VM) *telemetry.Telemetry {
	e := &telemetry.Telemetry{At: s.Number, T: t}
	for _, n := range s.list {
		at := s.ports[n]
		if !at.news {
			continue
		}
		p := at.now
		p.N, p.Marks.Rest = n, at.rest
		by := map[law.VM]uint64{}
		for address, marks := range at.marks {
			by[vmAt(address)] += marks
		}
		p.Marks.Unknown = by[0]
		delete(by, 0)
		for vm, marks := range by {
			p.Marks.ByVM = append(p.Marks.ByVM, telemetry.VMMarks{VM: vm, Packets: marks})
		}
		slices.SortFunc(p.Marks.ByVM, func(a, b telemetry.VMMarks) int { return int(int64(a.VM) - int64(b.VM)) })
		e.Ports = append(e.Ports, p)
		clear(at.marks)
		at.now, at.rest, at.news = telemetry.Port{}, 0, false
	}
	if len(e.Ports) == 0 {
		return nil
	}
	return e
}
