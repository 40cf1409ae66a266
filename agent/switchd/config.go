// Package switchd is the agent's switch role: it keeps FairQ on the ports of one switch, from the
// first to the last moment of the process, and says what the kernel knows of it.
package switchd

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weir/datapath"
	"weir/law"
)

// pinRoot is where switches are pinned, each in a directory of its name. Tests mount a BPF file system
// of their own there.
const pinRoot = "/sys/fs/bpf/weir/switch"

const nameMax = 32

// Config says what a switch is to do. Its zero values are those of Defaults, except where said.
type Config struct {
	Name  string   // of the switch: names its pins
	Ports []string // names of devices in the process's namespace, or patterns (path.Match)

	Rate   law.Rate  // 0: that of the port's shaper
	Buffer law.Bytes // 0: that of the port's shaper
	RTT    law.Duration

	TargetFraction float64      // α, of the buffer
	Interval       law.Duration // T
	Updates        int          // M
	Count          string       // active, handshake
	Shrink         string       // allow, avoid
	Gain           string       // paper, code
	Scope          []netip.Prefix

	Purge    bool // leave nothing pinned at the end
	TakeOver bool // from a living process
	Renew    bool // tables of another layout
	Version  string
	Log      *slog.Logger // nil: none
}

// Defaults are right for a port of 10 Gbit/s. T = 50 us, M = 10 and α = 0.2 are the paper's
// (docs/spec 1.1). The round trip limits a window (C*RTT + αB), so one that is too short costs
// throughput, and one too long only time to settle: 250 us is what the authors' testbed had.
func Defaults() Config {
	return Config{
		Name: "default", RTT: law.Duration(250 * time.Microsecond), TargetFraction: 0.2,
		Interval: law.Duration(50 * time.Microsecond), Updates: 10, Count: "active", Shrink: "allow", Gain: "paper",
	}
}

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
	counts  = mode[datapath.FairQCount]{"active": datapath.FairQCountActive, "handshake": datapath.FairQCountHandshake}
	shrinks = mode[datapath.FairQShrink]{"allow": datapath.FairQShrinkAllow, "avoid": datapath.FairQShrinkAvoid}
	gains   = mode[datapath.FairQGain]{"paper": datapath.FairQGainPaper, "code": datapath.FairQGainOVS}
)

// Check says what is wrong with a configuration, as the one who wrote it can mend it.
func (c *Config) Check() error {
	_, err := c.fairQ()
	if err != nil {
		return err
	}
	if len(c.Ports) == 0 {
		return errors.New("no ports: name at least one")
	}
	for _, p := range c.Ports {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return fmt.Errorf("port %q: neither a name nor a pattern", p)
		}
	}
	switch {
	case c.TargetFraction <= 0 || c.TargetFraction >= 1:
		return fmt.Errorf("a target of %g of the buffer: above 0 and below 1", c.TargetFraction)
	case c.Interval.Std() < 10*time.Microsecond || c.Interval.Std() > time.Second:
		return fmt.Errorf("an interval of %v: 10us to 1s", c.Interval)
	case c.Updates < 1 || c.Interval.Std()*time.Duration(min(c.Updates, 1e6)) > time.Second:
		return fmt.Errorf("%d samples an update: at least 1, and at most 1s together", c.Updates)
	case c.RTT <= 0 || c.RTT.Std() > time.Second:
		return fmt.Errorf("a round trip of %v: above 0, up to 1s", c.RTT)
	case c.Buffer < 0 || c.Buffer > 1<<32-1:
		return fmt.Errorf("a buffer of %v: below 4.29GB", c.Buffer)
	}
	return nil
}

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
func (c *Config) fairQ() (f datapath.FairQConfig, err error) {
	count, err1 := counts.parse("count", c.Count)
	shrink, err2 := shrinks.parse("shrink", c.Shrink)
	_, err3 := gains.parse("gain", c.Gain)
	return datapath.FairQConfig{
		Count: count, Shrink: shrink, Scope: c.Scope,
		Pin: pinDir(c.Name), TakeOver: c.TakeOver, Renew: c.Renew, Version: c.Version,
	}, errors.Join(CheckName(c.Name), err1, err2, err3)
}

// NoRate is the error for a port whose rate or buffer is neither given nor to be read.
type NoRate struct{ Port, Kind, Missing, Flag string }

func (e *NoRate) Error() string {
	return fmt.Sprintf("port %s: its queue discipline %q does not tell its %s: give %s", e.Port, e.Kind, e.Missing, e.Flag)
}

// law is that of a port with this shaper and MTU.
func (c *Config) law(port string, s shaper, mtu int) (l datapath.FairQLaw, err error) {
	rate, buffer := c.Rate, c.Buffer
	if rate == 0 {
		rate = s.Rate
	}
	if buffer == 0 {
		buffer = min(s.Buffer, 1<<32-1)
	}
	if rate == 0 {
		return l, &NoRate{port, s.Kind, "rate", "--rate"}
	}
	if buffer == 0 {
		return l, &NoRate{port, s.Kind, "buffer", "--buffer"}
	}
	gain, err := gains.parse("gain", c.Gain)
	if err != nil {
		return l, err
	}
	bytesPerSecond := float64(rate) / 8
	target := max(1, uint32(float64(buffer)*c.TargetFraction))
	pipe := bytesPerSecond * c.RTT.Std().Seconds()
	drain := time.Duration(float64(target) / bytesPerSecond * float64(time.Second))
	return datapath.FairQLaw{
		TargetBytes: target, BufferBytes: uint32(buffer), MTU: uint32(min(max(mtu, 576), 65535)),
		Tick: c.Interval.Std(), Period: c.Interval.Std() * time.Duration(c.Updates),
		CapBytes: uint32(min(pipe+float64(target), 1<<32-1)), Gain: gain,
		Active: min(4*(c.RTT.Std()+drain), maxActive),
	}, nil
}

func (c *Config) logger() *slog.Logger {
	if c.Log == nil {
		return slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return c.Log
}
