package switchd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"weir/datapath"
)

// State is what may be said of a port or a switch in one word.
type State string

// Of a port: its windows are held to the law; it is attached and lets every window pass; nothing of the
// law reaches it. Of a switch: the least of its ports', and stopped when it has none.
const (
	Enforced State = "enforced"
	Released State = "released"
	Off      State = "off"
	Stopped  State = "stopped"
)

// Report is what the kernel knows of all switches, or of one.
type Report struct {
	Switches []Switch `json:"switches"`
}

// Switch is one name of `weir switch`.
type Switch struct {
	Name      string  `json:"name"`
	State     State   `json:"state"`
	Reason    string  `json:"reason,omitempty"`  // why it is not enforced
	PID       int     `json:"pid,omitempty"`     // of the process that has it, or had it last
	Version   string  `json:"version,omitempty"` // of that process
	BeatAgeMs float64 `json:"beat_age_ms"`       // since it last said that it lives
	Ports     []Port  `json:"ports"`
}

// Port is one port of a switch. Packets are those that leave by it, as they are on the wire.
type Port struct {
	Port     string   `json:"port"`
	Ifindex  int      `json:"ifindex"`
	State    State    `json:"state"`
	Reason   string   `json:"reason,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	LinkID   uint32   `json:"link_id"`    // of BPF
	Program  uint32   `json:"program_id"` // of BPF

	Flows       uint32 `json:"flows"`        // that send data out of the port
	Connections uint32 `json:"connections"`  // in the table, opened from behind the port
	WindowBytes uint64 `json:"window_bytes"` // the law's, of each flow
	GrantBytes  uint64 `json:"grant_bytes"`  // what windows are held to now; 0: nothing
	TargetBytes uint32 `json:"target_bytes"`
	QueueBytes  uint32 `json:"queue_bytes"`     // at the last sample
	QueueMax    uint32 `json:"queue_max_bytes"` // since it was first attached

	Samples         uint64  `json:"samples"` // of the queue, by the timer
	SamplesByPacket uint64  `json:"samples_by_packet"`
	DeviceRefused   uint64  `json:"device_refused"` // samples that found the device gone
	SampleAgeMs     float64 `json:"sample_age_ms"`

	Packets   uint64            `json:"packets"`
	Rewritten uint64            `json:"rewritten"`
	Passed    map[string]uint64 `json:"passed"` // the rest of packets, by why
	Data      uint64            `json:"data"`   // with payload, whatever else
	Opened    uint64            `json:"opened"`
	Adopted   uint64            `json:"adopted"`    // of opened, those older than Weir
	TableFull uint64            `json:"table_full"` // not entered for want of room
}

// Reasons why packets pass as they are: the keys of Port.Passed.
var reasons = []struct {
	Key, Text string
	of        func(*datapath.FairQStats) uint64
}{
	{"smaller", "windows small enough", func(s *datapath.FairQStats) uint64 { return s.Smaller }},
	{"ungoverned", "acknowledge data of no governed port", func(s *datapath.FairQStats) uint64 { return s.Ungoverned }},
	{"unknown", "of no known connection", func(s *datapath.FairQStats) uint64 { return s.Unknown }},
	{"no_ack", "without acknowledgement", func(s *datapath.FairQStats) uint64 { return s.NoAck }},
	{"not_tcp", "not TCP", func(s *datapath.FairQStats) uint64 { return s.NotTCP }},
	{"out_of_scope", "out of scope", func(s *datapath.FairQStats) uint64 { return s.OutOfScope }},
	{"signed", "signed", func(s *datapath.FairQStats) uint64 { return s.Signed }},
	{"tunnel", "in tunnels", func(s *datapath.FairQStats) uint64 { return s.Tunnel }},
	{"fragment", "fragments", func(s *datapath.FairQStats) uint64 { return s.Fragment }},
	{"short", "broken", func(s *datapath.FairQStats) uint64 { return s.Short }},
	{"unwritable", "for want of memory", func(s *datapath.FairQStats) uint64 { return s.Unwritable }},
}

// Status reads the kernel, and nothing else: what is pinned of the switch with this name, or of all
// when it is "". No switch at all is an empty report.
func Status(name string) (*Report, error) {
	all := []string{name}
	if name == "" {
		entries, err := os.ReadDir(pinRoot)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list switches: %w", err)
		}
		all = nil
		for _, e := range entries {
			if CheckName(e.Name()) == nil && e.IsDir() {
				all = append(all, e.Name())
			}
		}
	} else if err := CheckName(name); err != nil {
		return nil, err
	}
	r := &Report{Switches: []Switch{}}
	for _, n := range all {
		s, err := readSwitch(n)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("switch %s: %w", n, err)
		}
		r.Switches = append(r.Switches, *s)
	}
	return r, nil
}

// Enforced says whether there is a switch, and windows are held on every port of every one.
func (r *Report) Enforced() bool {
	for _, s := range r.Switches {
		if s.State != Enforced {
			return false
		}
	}
	return len(r.Switches) > 0
}

func readSwitch(name string) (*Switch, error) {
	v, err := datapath.OpenFairQ(pinDir(name))
	var other *datapath.OtherSchema
	if errors.As(err, &other) {
		return &Switch{Name: name, State: Off, Reason: err.Error(), Ports: []Port{}}, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = v.Close() }()
	kernel, err := v.Read()
	if err != nil {
		return nil, err
	}
	return describe(name, kernel), nil
}

// describe puts what the kernel knows into words.
func describe(name string, kernel *datapath.FairQSwitch) *Switch {
	s := &Switch{
		Name: name, State: Stopped, PID: kernel.Holder.PID, Version: kernel.Holder.Version,
		BeatAgeMs: milliseconds(kernel.BeatAge), Ports: []Port{},
	}
	idle := ""
	switch {
	case kernel.Releasing && len(kernel.Ports) > 0:
		idle = "weir switch is ending"
	case !kernel.Alive():
		idle = fmt.Sprintf("no weir switch: the last beat was %v ago", kernel.BeatAge.Round(100*time.Millisecond))
	}
	for i := range kernel.Ports {
		p := describePort(&kernel.Ports[i], idle)
		if i == 0 || less(p.State, s.State) {
			s.State, s.Reason = p.State, p.Reason
		}
		s.Ports = append(s.Ports, p)
	}
	if len(s.Ports) == 0 {
		s.Reason = "attached to no port"
		if idle != "" {
			s.Reason += "; " + idle
		}
	}
	return s
}

// less orders the states of a port by what is left of the law.
func less(a, b State) bool {
	rank := map[State]int{Off: 0, Released: 1, Enforced: 2}
	return rank[a] < rank[b]
}

func describePort(k *datapath.FairQPinned, idle string) Port {
	p := Port{
		Port: k.Port, Ifindex: k.Ifindex, State: Enforced, LinkID: k.LinkID, Program: k.ProgramID,
		Flows: k.Flows, Connections: k.Connections, WindowBytes: k.WindowBytes, GrantBytes: k.GrantBytes,
		TargetBytes: k.TargetBytes, QueueBytes: k.QueueBytes, QueueMax: k.QueueMax,
		Samples: k.Samples, SamplesByPacket: k.SamplesByPacket, DeviceRefused: k.DeviceRefused, SampleAgeMs: milliseconds(k.SampleAge),
		Packets: k.Seen, Rewritten: k.Rewritten, Passed: map[string]uint64{}, Data: k.Data,
		Opened: k.Opened, Adopted: k.Adopted, TableFull: k.TableFull,
	}
	for _, r := range reasons {
		p.Passed[r.Key] = r.of(&k.FairQStats)
	}
	switch {
	case !k.HasDevice:
		p.State, p.Reason = Off, "its device is gone"
	case k.NoQueue != nil:
		p.State, p.Reason = Off, k.NoQueue.Error()
	case idle != "":
		p.State, p.Reason = Released, idle
	case k.Releasing:
		p.State, p.Reason = Released, "weir switch is leaving this port"
	}
	if len(k.Before) > 0 {
		p.Warnings = append(p.Warnings, fmt.Sprintf("run before FairQ, and may keep packets from it: %s", strings.Join(k.Before, ", ")))
	}
	if k.TableFull > 0 {
		p.Warnings = append(p.Warnings, fmt.Sprintf("%d connections found no room in the flow table and pass unmanaged", k.TableFull))
	}
	return p
}

// PassedText says why packets of p passed as they were, the reasons that occurred, most frequent kinds
// of traffic first.
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
