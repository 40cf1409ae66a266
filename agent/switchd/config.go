// Package switchd is the agent's switch role: it keeps FairQ on the ports of one switch, from the
// first to the last moment of the process, and says what the kernel knows of it.
package switchd

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weir/datapath/fairq"
	"weir/law"
)

// pinRoot is where switches are pinned, each in a directory of its name. Tests mount a BPF file system
// of their own there.
const pinRoot = "/sys/fs/bpf/weir/switch"

const nameMax = 32

// Config says what a switch is to do, with nothing left open: what Load makes of a file, and FromOptions of
// options.
type Config struct {
	Name  string     // of the switch: names its pins
	File  string     // that it was read from, for a reload; "": none
	Ports []PortRule // the first that matches a device counts

	Count      string // opening, active, handshake
	Scale      string // learn, shim, unify
	UnifyShift int
	Flows      int    // places in the flow table
	Shrink     string // allow, avoid
	Signed     string // pass, limit, drop
	Scope      []netip.Prefix
	Edge       fairq.EdgeMode // Interval 0: off

	Enforce  Enforce
	Rollback Rollback
	Metrics  Metrics

	Warning string // of a file of an earlier version: one line that says what to write instead

	Options
}

// Options are of a process, not of the switch: no file has them, and no reload changes them.
type Options struct {
	Purge    bool // leave nothing pinned at the end
	TakeOver bool // from a living process
	Renew    bool // tables of another layout
	Wait     bool // for ports that are not there at the start; else *NoDevice
	Version  string
	Hangup   <-chan os.Signal // read File again; nil: nobody says so
	Log      *slog.Logger     // nil: none
}

// PortRule says how the devices that it matches are managed.
type PortRule struct {
	Match []string // names of devices in the process's namespace, or patterns (path.Match)
	PortSettings
}

// Metrics says where figures are served.
type Metrics struct {
	Listen string // "": nowhere
}

// defaultPort is right for a port of 10 Gbit/s. T = 50 us, M = 10 and α = 0.2 are the paper's (docs/spec
// 1.1). The round trip limits a window (C*RTT + αB), so one that is too short costs throughput, and one
// too long only time to settle: 250 us is what the authors' testbed had.
func defaultPort() PortSettings {
	return PortSettings{
		RTT: law.Duration(250 * time.Microsecond), Mark: &Mark{},
		FairQ: PortFairQ{
			TargetFraction: 0.2, Interval: law.Duration(50 * time.Microsecond), Updates: 10, Gain: "paper", MinWindow: new(law.Bytes), Paths: 1,
		},
	}
}

// Defaults are what holds where neither a file nor an option says anything.
func Defaults() Config { return *defaultFile().config() }

// maxActive is the longest that the kernel programs count a silent flow for.
const maxActive = 4 * time.Second

// mode is a choice of one of several words.
type mode[T any] map[string]T

func (m mode[T]) parse(what, word string) (v T, err error) {
	v, ok := m[word]
	if !ok {
		return v, fmt.Errorf("%s %q: choose %s", what, word, strings.Join(slices.Sorted(maps.Keys(m)), " or "))
	}
	return v, nil
}

var (
	counts  = mode[fairq.Count]{"active": fairq.CountActive, "opening": fairq.CountOpening, "handshake": fairq.CountHandshake}
	scales  = mode[fairq.Scale]{"learn": fairq.ScaleLearn, "shim": fairq.ScaleShim, "unify": fairq.ScaleUnify}
	shrinks = mode[fairq.Shrink]{"allow": fairq.ShrinkAllow, "avoid": fairq.ShrinkAvoid}
	signeds = mode[fairq.Signed]{"pass": fairq.SignedPass, "limit": fairq.SignedLimit, "drop": fairq.SignedDrop}
	gains   = mode[fairq.Gain]{"paper": fairq.GainPaper, "code": fairq.GainOVS}
)

// CheckName refuses a name of a switch that is not one element of a path.
func CheckName(name string) error {
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}
	if name == "" || len(name) > nameMax || strings.ContainsFunc(name, bad) {
		return fmt.Errorf("name %q: 1 to %d of a-z, A-Z, 0-9, dash and underscore", name, nameMax)
	}
	return nil
}

// pinDir is where a switch is pinned.
func pinDir(name string) string { return filepath.Join(pinRoot, name) }

// fairQ is what the ports have in common.
func (c *Config) fairQ() (f fairq.Config, err error) {
	count, err1 := counts.parse("count", c.Count)
	scale, err2 := scales.parse("scale", c.Scale)
	shrink, err3 := shrinks.parse("shrink", c.Shrink)
	signed, err4 := signeds.parse("signed", c.Signed)
	return fairq.Config{
		Count: count, Scale: scale, UnifyShift: uint8(c.UnifyShift), Flows: uint32(c.Flows), Shrink: shrink, Signed: signed, Scope: c.Scope, Edge: c.Edge,
		Pin: pinDir(c.Name), TakeOver: c.TakeOver, Renew: c.Renew, Version: c.Version, Watch: len(c.Rollback.If) > 0,
	}, errors.Join(CheckName(c.Name), err1, err2, err3, err4)
}

// NoRate is the error for a port whose rate or buffer is neither given nor to be read.
type NoRate struct{ Port, Kind, Missing string }

func (e *NoRate) Error() string {
	return fmt.Sprintf("port %s: its queue discipline %q does not tell its %s: give --%s, or %s in the file", e.Port, e.Kind, e.Missing, e.Missing, e.Missing)
}

// law is that of a port with these settings, this shaper and MTU.
func (s *PortSettings) law(port string, own shaper, mtu int) (l fairq.Law, err error) {
	rate, buffer := s.Rate, s.Buffer
	if rate == 0 {
		rate = own.Rate
	}
	if buffer == 0 {
		buffer = min(own.Buffer, 1<<32-1)
	}
	if rate == 0 {
		return l, &NoRate{port, own.Kind, "rate"}
	}
	if buffer == 0 {
		return l, &NoRate{port, own.Kind, "buffer"}
	}
	gain, err := gains.parse("gain", s.FairQ.Gain)
	if err != nil {
		return l, err
	}
	bytesPerSecond := float64(rate) / 8
	target := max(1, uint32(float64(buffer)*s.FairQ.TargetFraction))
	pipe := bytesPerSecond * s.RTT.Std().Seconds()
	drain := time.Duration(float64(target) / bytesPerSecond * float64(time.Second))
	return fairq.Law{
		TargetBytes: target, BufferBytes: uint32(buffer), MTU: uint32(min(max(mtu, 576), 65535)),
		Tick: s.FairQ.Interval.Std(), Period: s.FairQ.Interval.Std() * time.Duration(s.FairQ.Updates),
		FloorBytes: uint32(*s.FairQ.MinWindow), CapBytes: uint32(min(pipe+float64(target), 1<<32-1)), Gain: gain,
		Active: min(4*(s.RTT.Std()+drain), maxActive), Paths: uint16(s.FairQ.Paths),
	}, nil
}

func (c *Config) logger() *slog.Logger {
	if c.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Log
}
