package switchd

import (
	"fmt"
	"strings"
	"time"

	"weir/datapath/reading"
)

// State sums up a port or a switch in one word.
type State string

// A port is Enforced if its windows are limited as configured, Degraded if something keeps the law from some or all of
// the traffic, and Off if a part is missing. A switch has the worst state of its ports.
const (
	Enforced State = "enforced"
	Degraded State = "degraded"
	Off      State = "off"
)

// less reports whether a is worse than b.
func less(a, b State) bool {
	rank := map[State]int{Off: 0, Degraded: 1, Enforced: 2}
	return rank[a] < rank[b]
}

// Report is the kernel's state of one switch, or of all.
type Report struct {
	Switches []Switch `json:"switches"`
}

// Switch is one switch of `weir switch`.
type Switch struct {
	Name                 string  `json:"name"`              // name of the switch
	Law                  string  `json:"law,omitempty"`     // law that this entry is about, if it is not the first of Weir's laws
	State                State   `json:"state"`             // worst state of the ports that are not down or observed
	Word                 string  `json:"word,omitempty"`    // finding that makes it less than enforced
	Reason               string  `json:"reason,omitempty"`  // the same finding in words
	PID                  int     `json:"pid,omitempty"`     // process that owns the switch, or owned it last
	Version              string  `json:"version,omitempty"` // version of that process
	HeartbeatAgeMs       float64 `json:"heartbeat_age_ms"`  // time since the last heartbeat
	FormerHeartbeatAgeMs float64 `json:"beat_age_ms"`       // former name of heartbeat_age_ms, for one release

	UptimeSeconds float64 `json:"uptime_s,omitempty"`    // time since the process took the switch, while it lives
	RSSBytes      uint64  `json:"rss_bytes,omitempty"`   // resident memory of the process
	CPUSeconds    float64 `json:"cpu_seconds,omitempty"` // CPU time of the process; the kernel programs are not included

	SignedSources []SignedSource `json:"signed_sources,omitempty"` // the 10 sources with the most signed segments

	Parking *Parking `json:"parking,omitempty"` // where packets wait; absent if no port of this namespace has credits or repairs losses

	Ports []Port `json:"ports"` // ports of the switch
}

// SignedSource is a source of segments that both ends of their connection sign (TCP-MD5, TCP-AO).
type SignedSource struct {
	Address  string `json:"address"`        // source address
	VLAN     uint32 `json:"vlan,omitempty"` // tags from the outer to the inner, 12 bits each
	Segments uint64 `json:"segments"`       // signed segments from this address
	Dropped  uint64 `json:"dropped"`        // of these, segments dropped by signed: limit or drop
}

// label names the source in metrics.
func (s *SignedSource) label() string {
	if s.VLAN == 0 {
		return s.Address
	}
	return fmt.Sprintf("%s vlan %d", s.Address, s.VLAN)
}

// Port is one port of a switch. Packets are those that leave by it, counted as on the wire.
type Port struct {
	Port     string    `json:"port"`               // name of the port
	Ifindex  int       `json:"ifindex"`            // interface index of the device
	State    State     `json:"state"`              // enforced, degraded or off
	Word     string    `json:"word,omitempty"`     // finding that makes it less than enforced
	Reason   string    `json:"reason,omitempty"`   // the same finding in words
	Findings []Finding `json:"findings,omitempty"` // all findings, worst first
	Warnings []string  `json:"warnings,omitempty"` // reasons of the other findings
	LinkID   uint32    `json:"link_id"`            // BPF link id (bpftool link)
	Program  uint32    `json:"program_id"`         // BPF program id (bpftool prog)

	Flows       uint32 `json:"flows"`                // flows that send data out of the port now
	Connections uint32 `json:"connections"`          // connections in the flow table that were opened by hosts behind the port
	WindowBytes uint64 `json:"window_bytes"`         // window that the law gives each flow
	GrantBytes  uint64 `json:"grant_bytes"`          // window that flows are limited to now; 0: none is limited
	TargetBytes uint32 `json:"target_bytes"`         // target queue
	QueueBytes  uint32 `json:"queue_bytes"`          // queue at the last sample; a port without flows is not sampled
	QueueMax    uint32 `json:"queue_max_bytes"`      // longest queue since the port was first attached
	QueueKind   string `json:"queue_kind,omitempty"` // root queue discipline of the port now
	Backlog     uint32 `json:"backlog_bytes"`        // backlog of the root queue discipline now
	QueueDrops  uint64 `json:"queue_drops"`          // drops of the root queue discipline since it was made
	DeviceDrops uint64 `json:"device_drops"`         // drops of the device on transmit since it was made

	Enforce              string  `json:"enforce"`                    // which flows are limited: all, part or none
	EnforcePercent       float64 `json:"enforce_percent"`            // percentage of the flows to limit
	FormerEnforce        string  `json:"hold"`                       // former name of enforce, for one release
	FormerEnforcePercent float64 `json:"hold_percent"`               // former name of enforce_percent, for one release
	OneSidedData         uint32  `json:"one_sided_data"`             // flows of which only data passed this switch for a second
	OneSidedAcks         uint32  `json:"one_sided_acks"`             // flows of which only acknowledgements passed this switch for a second
	HandshakeRTTUs       float64 `json:"handshake_rtt_us,omitempty"` // smallest round-trip time of the handshakes of the last 9 to 17 s

	Samples         uint64  `json:"samples"`           // samples of the queue by the timer
	SamplesByPacket uint64  `json:"samples_by_packet"` // samples of the queue by a packet, when the timer was late
	DeviceRefused   uint64  `json:"device_refused"`    // timer ticks that found the device gone and read nothing
	SampleAgeMs     float64 `json:"sample_age_ms"`     // time since the last sample

	Packets   uint64            `json:"packets"`    // packets that left or were dropped, as on the wire, since the port was first attached
	Rewritten uint64            `json:"rewritten"`  // of these, acknowledgements whose window was rewritten
	Passed    map[string]uint64 `json:"passed"`     // of these, packets that passed unchanged, by reason
	Dropped   uint64            `json:"dropped"`    // of these, signed segments dropped by signed: limit or drop
	Data      uint64            `json:"data"`       // of these, packets with payload
	Opened    uint64            `json:"opened"`     // connections entered in the flow table
	Adopted   uint64            `json:"adopted"`    // of these, connections that began before the law was attached
	TableFull uint64            `json:"table_full"` // connections that found no room in the flow table

	Credits *Credits `json:"credits,omitempty"` // promises and credits; absent without them
	Repairs *Repairs `json:"repairs,omitempty"` // repair of losses; absent without it

	Rates *Rates `json:"rates,omitempty"` // rates between two readings; absent after one
}

// Idle reports whether a port that is not enforced has no fault: it is down, or observed only.
func (p *Port) Idle() bool { return p.Word == wordDown || p.Word == wordObserved }

// Observes reports whether the configuration limits no flow on any port of the switch.
func (s *Switch) Observes() bool { return s.Word == wordObserved }

// reasons why packets pass unchanged: the keys of Port.Passed.
var reasons = []struct {
	Key, Text, Means string // the key; in the text of weir status; in docs/tables/status.md
	of               func(*reading.Stats) uint64
}{
	{"smaller", "windows small enough", "the window was small enough already", func(s *reading.Stats) uint64 { return s.Smaller }},
	{"ungoverned", "acknowledge data of no managed port", "the port of the data has no flows, or no law", func(s *reading.Stats) uint64 { return s.Ungoverned }},
	{"free", "of flows that are not limited", "the flow is in the control group, or its port is only observed", func(s *reading.Stats) uint64 { return s.Free }},
	{"unknown", "of no known connection", "the connection is not in the flow table", func(s *reading.Stats) uint64 { return s.Unknown }},
	{"no_ack", "without acknowledgement", "the segment acknowledges nothing", func(s *reading.Stats) uint64 { return s.NoAck }},
	{"not_tcp", "not TCP", "the packet is not TCP", func(s *reading.Stats) uint64 { return s.NotTCP }},
	{"out_of_scope", "out of scope", "an end of the flow is outside scope", func(s *reading.Stats) uint64 { return s.OutOfScope }},
	{"signed", "signed", "both ends sign the segments (TCP-MD5, TCP-AO)", func(s *reading.Stats) uint64 { return s.Signed }},
	{"tunnel", "in tunnels", "the packet is tunnelled or encrypted", func(s *reading.Stats) uint64 { return s.Tunnel }},
	{"fragment", "fragments", "the packet is an IP fragment", func(s *reading.Stats) uint64 { return s.Fragment }},
	{"short", "broken", "the headers are incomplete or contradict each other", func(s *reading.Stats) uint64 { return s.Short }},
	{"unwritable", "no memory", "the kernel had no memory to copy the header", func(s *reading.Stats) uint64 { return s.Unwritable }},
	{"untold", "left to the edge", "edge mode: the edge writes the window", func(s *reading.Stats) uint64 { return s.LeftToEdge }},
}

// Status reads, once, the kernel's state of the switch with this name, or of all with "". Without any switch the report
// is empty. A Meter also sees what takes two readings.
func (a *Agent) Status(name string) (*Report, error) {
	m, err := a.NewMeter(name)
	if err != nil {
		return nil, err
	}
	return m.Read()
}

// Enforced reports whether there is a switch, and all switches enforce on every port that is not idle.
func (r *Report) Enforced() bool {
	for i := range r.Switches {
		if r.Switches[i].State != Enforced {
			return false
		}
	}
	return len(r.Switches) > 0
}

// describe makes the report of a reading; before is the previous one, or nil.
func describe(name string, now, before *snapshot) *Switch {
	k := now.kernel
	s := &Switch{
		Name: name, State: Enforced, PID: k.Holder.PID, Version: k.Holder.Version,
		HeartbeatAgeMs: milliseconds(k.HeartbeatAge), FormerHeartbeatAgeMs: milliseconds(k.HeartbeatAge),
		RSSBytes: now.process.rssBytes, CPUSeconds: now.process.cpu.Seconds(), Ports: []Port{},
	}
	if k.Alive() || now.process.here {
		s.UptimeSeconds = k.Holder.Since.Round(time.Millisecond).Seconds()
	}
	s.Parking = parkingOf(k.Parking)
	for _, from := range k.SignedSources {
		s.SignedSources = append(s.SignedSources, SignedSource{from.Addr.String(), from.VLANs, from.Segments, from.Dropped})
	}
	idle, down := 0, 0
	for i := range k.Ports {
		v := now.view(i, before)
		p := describePort(v)
		if p.Idle() {
			idle++
			if p.Word == wordDown {
				down++
			}
		} else if less(p.State, s.State) {
			s.State, s.Word, s.Reason = p.State, p.Word, p.Port+": "+p.Reason
		}
		s.Ports = append(s.Ports, p)
	}
	whole := view{law: now.law, sw: k, process: now.process}
	if len(s.Ports) == 0 {
		s.State, s.Word, s.Reason = Off, wordStopped, "attached to no port"
		if reason, _ := lookReleased(&whole); reason != "" {
			s.Reason += "; " + reason
		}
	}
	if len(s.Ports) > 0 && idle == len(s.Ports) {
		s.State, s.Word, s.Reason = Off, wordObserved, "its ports are observed only, or down"
		if down == idle {
			s.Word, s.Reason = wordDown, "all its ports are down"
		}
	}
	return s
}

func describePort(v *view) Port {
	k := v.k
	p := Port{
		Port: k.Port, Ifindex: k.Ifindex, State: Enforced, LinkID: k.LinkID, Program: k.ProgramID,
		Flows: k.Flows, Connections: k.Connections, WindowBytes: k.WindowBytes, GrantBytes: k.GrantBytes,
		TargetBytes: k.TargetBytes, QueueBytes: k.QueueBytes, QueueMax: k.QueueMax, QueueKind: k.Queue.Kind,
		Backlog:    k.Queue.BacklogBytes,
		QueueDrops: uint64(k.Queue.Drops), DeviceDrops: v.device.txDropped,
		Enforce: k.Mode.String(), EnforcePercent: 100 * enforcedRatio(k.Mode, k.LimitedBuckets),
		FormerEnforce: k.Mode.String(), FormerEnforcePercent: 100 * enforcedRatio(k.Mode, k.LimitedBuckets),
		OneSidedData: k.OneSidedData, OneSidedAcks: k.OneSidedAcks, HandshakeRTTUs: float64(k.HandshakeRTT) / float64(time.Microsecond),
		Samples: k.Samples, SamplesByPacket: k.SamplesByPacket, DeviceRefused: k.DeviceRefused, SampleAgeMs: milliseconds(k.SampleAge),
		Packets: k.Seen, Rewritten: k.Rewritten, Passed: map[string]uint64{}, Dropped: k.Dropped, Data: k.Data,
		Opened: k.Opened, Adopted: k.Adopted, TableFull: k.TableFull,
		Rates: v.recent.rates(), Findings: v.findings(), Credits: creditsOf(&k.Credits), Repairs: repairsOf(k.Repairs),
	}
	for _, r := range reasons {
		p.Passed[r.Key] = r.of(&k.Stats)
	}
	for i, f := range p.Findings {
		if i == 0 && f.State != Enforced {
			p.State, p.Word, p.Reason = f.State, f.Word, f.Reason
			continue
		}
		p.Warnings = append(p.Warnings, f.Reason)
	}
	return p
}

// PassedText lists the packets of p that passed unchanged, by reason, in the order of reasons.
func (p *Port) PassedText() string {
	var out []string
	for _, r := range reasons {
		if n := p.Passed[r.Key]; n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, r.Text))
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}
