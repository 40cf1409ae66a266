// Package switchd is the agent's switch role: it attaches a law to the ports of one switch, detaches it at the end, and
// reports the state that the kernel has. It knows no law: the interface Law lists what a law must provide, and each law
// implements it in a folder of its name.
package switchd

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"time"

	"weir/law"
)

// pinRoot is the directory where switches are pinned, each in a directory of its name. Tests mount a BPF file system of
// their own there.
const pinRoot = "/sys/fs/bpf/weir/switch"

const nameMax = 32

// Config is a complete configuration of a switch. Load makes it from a file, and FromOptions from options.
type Config struct {
	Name  string     // of the switch, and of the directory of its pins
	File  string     // the file it was read from, read again by a reload; "": none
	Ports []PortRule // the first entry that matches a device counts

	Scope []netip.Prefix // limits what is managed to flows with both ends in it; none: all
	Laws  []LawKeys      // one or more, with their keys of all ports

	Enforce  Enforce
	Rollback Rollback
	Metrics  Metrics

	Warning string // for a file of an earlier version: one line with the command that converts it

	agent *Agent // the agent that made it

	Options
}

// Options belong to a process, not to the switch: no file contains them, and no reload changes them.
type Options struct {
	Purge    bool // remove the tables at the end, too
	TakeOver bool // from a running process
	Renew    bool // replace tables of another layout
	Wait     bool // for ports that do not exist at the start; otherwise *NoDevice
	Version  string
	Hangup   <-chan os.Signal   // signals to read File again; nil: none
	Asked    chan chan<- Answer // requests to do so, of the agent that runs this switch in its process; nil: it runs alone
	Log      *slog.Logger       // nil: none
}

// PortRule has the settings of the devices that it matches.
type PortRule struct {
	Match []string // names of devices in the process's namespace, or patterns (path.Match)
	PortSettings
}

// Metrics is the address of the metrics.
type Metrics struct {
	Listen string // address and port; "": nowhere
}

// defaultPort fits a port of 10 Gbit/s. The round-trip time limits a window: too small a value costs throughput, too
// large a value only makes windows settle later. 250 us is the value of the authors' testbed.
func defaultPort(laws []LawKeys) PortSettings {
	s := PortSettings{RTT: law.Duration(250 * time.Microsecond), Mark: &Mark{}}
	for i := range laws {
		s.Laws = append(s.Laws, laws[i].Law.Facts().Port)
	}
	return s
}

// DefaultName is the name of a switch if neither a file nor an option gives another.
const DefaultName = "default"

// CheckName returns an error unless the name can be one element of a path.
func CheckName(name string) error {
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}
	if name == "" || len(name) > nameMax || strings.ContainsFunc(name, bad) {
		return fmt.Errorf("name %q is not valid: use 1 to %d of a-z, A-Z, 0-9, - and _", name, nameMax)
	}
	return nil
}

// settings returns the configuration that the ports share, of each law.
func (c *Config) settings() (out []Setting) {
	for i := range c.Laws {
		l := &c.Laws[i]
		out = append(out, Setting{l.Law, Common{
			Pin: l.pin(c.Name), TakeOver: c.TakeOver, Renew: c.Renew, Version: c.Version, Scope: c.Scope,
			Watch: len(c.Rollback.If) > 0, Keys: l.Keys,
		}})
	}
	return out
}

// laws lists the laws without their keys.
func (c *Config) laws() (out []Law) {
	for i := range c.Laws {
		out = append(out, c.Laws[i].Law)
	}
	return out
}

// NoRate is the error for a port whose rate or buffer is neither configured nor readable from its queue discipline.
type NoRate struct{ Port, Kind, Missing string }

func (e *NoRate) Error() string {
	return fmt.Sprintf("port %s: its queue discipline %q reports no %s: set --%s, or %s in the file", e.Port, e.Kind, e.Missing, e.Missing, e.Missing)
}

// site returns what a law's parameters depend on: these settings, this shaper and this MTU.
func (s *PortSettings) site(port string, own shaper, mtu int) (Site, error) {
	site := Site{Rate: cmp.Or(s.Rate, own.Rate), Buffer: cmp.Or(s.Buffer, min(own.Buffer, 1<<32-1)), RTT: s.RTT, MTU: mtu}
	if own.Rate == 0 { // the rate is that of the line
		site.LineBytes = LineBytes
	}
	if site.Rate == 0 {
		return site, &NoRate{port, own.Kind, "rate"}
	}
	if site.Buffer == 0 {
		return site, &NoRate{port, own.Kind, "buffer"}
	}
	return site, nil
}

func (c *Config) logger() *slog.Logger {
	if c.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Log
}
