package agentd

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"time"

	"weir/datapath/host"
	"weir/law"
)

// grantsListed limits the live grants of a VM in a status.
const grantsListed = 64

// Status is the state of an agent.
type Status struct {
	Name      string        `json:"name"`
	Version   string        `json:"version"`
	PID       int           `json:"pid"`
	UpSeconds int64         `json:"up_seconds"`
	Reloads   uint64        `json:"reloads"`
	Refused   uint64        `json:"reloads_refused"` // of Reloads
	Bus       BusStatus     `json:"bus"`
	Host      *HostStatus   `json:"host,omitempty"`
	Switch    *SwitchStatus `json:"switch,omitempty"`
}

// BusStatus is the state of the agent's end of the bus.
type BusStatus struct {
	Connected  bool              `json:"connected"`
	URLs       []string          `json:"urls"`
	Bucket     uint32            `json:"bucket"`
	Term       uint64            `json:"term"`                 // the highest seen; 0: none yet
	Controller string            `json:"controller,omitempty"` // that is obeyed
	Commands   map[string]uint64 `json:"commands"`             // obeyed, or refused by reason
	Lost       uint64            `json:"lost"`                 // messages with state or inventory that the bus did not take
	Refused    uint64            `json:"subjects_refused"`     // by the bus
	Dropped    uint64            `json:"overruns"`             // times that commands came faster than they were carried out
	Stray      uint64            `json:"grants_without_host"`  // that came although this agent has no role host
	Questions  uint64            `json:"questions_unanswered"` // of operators
}

// HostStatus is the state of the role host.
type HostStatus struct {
	Number    law.Host          `json:"number"`
	Uplink    string            `json:"uplink"`
	Rate      law.Rate          `json:"rate"`          // of the limiter; 0: none
	Off       string            `json:"off,omitempty"` // why nothing is enforced
	Set       uint64            `json:"grants_set"`
	Capped    uint64            `json:"grants_capped"`  // of them: their lease was shortened
	Refused   map[string]uint64 `json:"grants_refused"` // by reason
	Live      int               `json:"grants_live"`
	Frames    *FramesStatus     `json:"frames,omitempty"`    // nil: grants come by the bus
	Half      *HalfStatus       `json:"law,omitempty"`       // of a law at this host; nil: none
	Deadlines *DeadlinesStatus  `json:"deadlines,omitempty"` // nil: programs cannot declare any
	VMs       []VMStatus        `json:"vms"`
}

// DeadlinesStatus is the state of what programs declared.
type DeadlinesStatus struct {
	Live    int               `json:"live"` // deadlines that are ahead
	Taken   uint64            `json:"taken"`
	Refused map[string]uint64 `json:"refused"` // by reason

	Metadata *MetadataStatus `json:"metadata,omitempty"` // nil: no address
}

// MetadataStatus is the state of the link-local address at which VMs declare.
type MetadataStatus struct {
	Addresses []string `json:"addresses"`
	VMs       int      `json:"vms"`           // that are answered there
	Off       string   `json:"off,omitempty"` // why none is
	Taken     uint64   `json:"taken"`         // frames
	Dropped   uint64   `json:"dropped"`       // too many, too long, or neither TCP nor ICMP
}

// FramesStatus is the state of grants in frames.
type FramesStatus struct {
	Off    string            `json:"off,omitempty"` // why none are received
	Counts map[string]uint64 `json:"frames"`        // taken, or refused by reason
}

// VMStatus is the state of a configured VM.
type VMStatus struct {
	VM     law.VM      `json:"vm"`
	Name   string      `json:"name,omitempty"`
	Port   string      `json:"port"`
	Off    string      `json:"off,omitempty"` // why nothing is enforced for it
	Counts *host.Stats `json:"counts,omitempty"`
	Live   int         `json:"grants_live"`
	Grants []LiveGrant `json:"grants"` // of Live, at most 64
}

// LiveGrant is a grant that the kernel has, and that is valid.
type LiveGrant struct {
	Kind   string `json:"kind"`
	Owner  uint8  `json:"owner"`
	Peer   string `json:"peer,omitempty"`
	Flow   string `json:"flow,omitempty"`
	Value  uint64 `json:"value"`   // bytes, or bit/s
	LeftMs int64  `json:"left_ms"` // of its lease
}

// SwitchStatus is the state of the role switch.
type SwitchStatus struct {
	Number   law.Switch    `json:"number"`
	Interval law.Duration  `json:"interval"`
	Off      string        `json:"off,omitempty"` // why there is no telemetry
	Counts   ReadingCounts `json:"counts"`
	Ports    []PortStatus  `json:"ports"`
	Laws     *LawsStatus   `json:"laws,omitempty"`
}

// PortStatus is the state of a configured port.
type PortStatus struct {
	Port   string    `json:"port"`
	Number uint32    `json:"number"`
	Off    string    `json:"off,omitempty"` // why it is not reported about
	Rate   law.Rate  `json:"rate"`
	Buffer law.Bytes `json:"buffer"`
}

// LawsStatus is the state of the laws that run in the agent's process.
type LawsStatus struct {
	File   string `json:"file"`
	Switch string `json:"switch"`        // its name: weir status --name
	Off    string `json:"off,omitempty"` // why they do not run
}

// Well returns what is wrong, one line each.
func (s *Status) Well() (wrong []string) {
	note := func(what, why string) {
		if why != "" {
			wrong = append(wrong, what+": "+why)
		}
	}
	if !s.Bus.Connected {
		note("bus", "not connected")
	}
	if h := s.Host; h != nil {
		note("host", h.Off)
		if h.Frames != nil {
			note("frames", h.Frames.Off)
		}
		for i := range h.VMs {
			note("VM "+h.VMs[i].Port, h.VMs[i].Off)
		}
	}
	if w := s.Switch; w != nil {
		note("switch", w.Off)
		for i := range w.Ports {
			note("port "+w.Ports[i].Port, w.Ports[i].Off)
		}
		if w.Laws != nil {
			note("laws", w.Laws.Off)
		}
	}
	return wrong
}

// status reads the agent's state; with grants also those in the kernel.
func (a *agent) status(grants bool) *Status {
	s := &Status{
		Name: a.cfg.Name, Version: a.cfg.Version, PID: os.Getpid(), UpSeconds: int64(time.Since(a.begun).Seconds()),
		Reloads: a.events.reloads, Refused: a.events.refused, Bus: a.link.status(a.cfg.Bus.URLs),
	}
	if a.host != nil {
		s.Host = a.host.status(grants)
		s.Host.Frames = a.frames.status()
	}
	if a.ports != nil {
		s.Switch = a.ports.status()
		if a.laws != nil {
			name, off := a.laws.status()
			s.Switch.Laws = &LawsStatus{a.laws.file, name, off}
		}
	}
	return s
}

func (l *link) status(urls []string) BusStatus {
	s := BusStatus{
		Connected: l.Conn().Connected(), URLs: urls, Bucket: l.Bucket(), Commands: l.Counts(), Lost: l.lost.Load(),
		Refused: l.Conn().Refused(), Dropped: l.Conn().Dropped(), Stray: l.stray.Load(), Questions: l.Conn().Unanswered(),
	}
	for _, t := range l.State("").GetTerms() {
		s.Term, s.Controller = t.GetTerm(), t.GetController().GetName()
	}
	return s
}

func (r *hostRole) status(grants bool) *HostStatus {
	s := &HostStatus{Number: r.cfg.Number, Uplink: r.cfg.Uplink, Rate: r.cfg.Rate, Refused: map[string]uint64{}, VMs: []VMStatus{}}
	h, off := r.host()
	s.Off = off
	r.grants.count(s)
	if r.half != nil {
		s.Half = r.half.status()
	}
	if r.deadlines != nil {
		s.Deadlines = r.deadlines.status()
		s.Deadlines.Metadata = r.metadata.status()
	}
	counts, live := map[law.VM]host.Stats{}, map[law.VM][]host.Granted{}
	if h != nil {
		all, err := h.Stats()
		for i := range all {
			counts[all[i].VM] = all[i]
		}
		var list []host.Granted
		if grants && err == nil {
			list, err = h.Grants(0)
		}
		for _, g := range list {
			if g.Valid {
				live[g.Key.VM] = append(live[g.Key.VM], g)
				s.Live++
			}
		}
		if err != nil {
			r.log.Warn("cannot read what is enforced", "error", err)
		}
	}
	for i := range r.cfg.VMs {
		v := &r.cfg.VMs[i]
		one := VMStatus{VM: v.Number, Name: v.Name, Port: v.Port, Live: len(live[v.Number]), Grants: []LiveGrant{}}
		if c, ok := counts[v.Number]; ok {
			one.Counts = &c
		}
		if _, on := r.added[v.Number]; !on {
			one.Off = cmp.Or(r.wrong.of(vmName(v.Number)), off)
		}
		for _, g := range live[v.Number][:min(len(live[v.Number]), grantsListed)] {
			one.Grants = append(one.Grants, liveGrant(g))
		}
		s.VMs = append(s.VMs, one)
	}
	return s
}

func liveGrant(g host.Granted) LiveGrant {
	l := LiveGrant{
		Kind: g.Kind.String(), Owner: uint8(g.Owner), Value: g.Value,
		LeftMs: g.Expiry.Milliseconds(),
	}
	if g.Key.Flow != (law.Flow{}) {
		l.Flow = g.Key.Flow.Src.String() + " > " + g.Key.Flow.Dst.String()
	} else if g.Key.Peer.IsValid() {
		l.Peer = g.Key.Peer.String()
	}
	return l
}

// count adds the counts of grants.
func (g *Grants) count(s *HostStatus) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.Set, s.Capped = g.set, g.capped
	for _, why := range append(slices.Clone(host.Reasons), notOpen, tooLate) {
		s.Refused[string(why)] = g.refused[why]
	}
}

func (r *switchRole) status() *SwitchStatus {
	s := &SwitchStatus{Number: r.cfg.Number, Interval: law.Duration(r.cfg.Interval), Off: r.failed, Ports: []PortStatus{}}
	r.mu.Lock()
	s.Counts = r.reads.counts
	r.mu.Unlock()
	s.Counts.Late = r.reads.late.Load()
	for _, p := range r.cfg.Ports {
		d := r.devices[p.Name]
		one := PortStatus{Port: p.Name, Number: p.Number, Rate: d.Rate, Buffer: d.Buffer}
		if _, on := r.attached[p.Number]; !on {
			one.Off = cmp.Or(r.wrong.of("port "+p.Name), r.failed)
		}
		s.Ports = append(s.Ports, one)
	}
	return s
}

// sortedKeys returns the keys of a map of counts in order.
func sortedKeys(m map[string]uint64) []string { return slices.Sorted(maps.Keys(m)) }
