// Package switchd is the agent's switch role: it keeps a law on the ports of one switch, from the
// first to the last moment of the process, and says what the kernel knows of it. It knows no law: what one needs here
// is the interface Law, and stands in a folder of the law's name.
package switchd

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

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

	Scope []netip.Prefix // of flows that are managed; none: all
	Law   any            // the law's keys of all ports: what Keys.AllKeys made

	Enforce  Enforce
	Rollback Rollback
	Metrics  Metrics

	Warning string // of a file of an earlier version: one line that says what to write instead

	agent *Agent // that made it

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

// defaultPort is right for a port of 10 Gbit/s. The round trip limits a window, so one that is too short costs throughput,
// and one too long only time to settle: 250 us is what the authors' testbed had.
func defaultPort(l Law) PortSettings {
	return PortSettings{RTT: law.Duration(250 * time.Microsecond), Mark: &Mark{}, Law: l.PortKeys()}
}

// DefaultName is the name of a switch where neither a file nor an option says another.
const DefaultName = "default"

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

// common is what the ports have in common.
func (c *Config) common() *Common {
	return &Common{Pin: pinDir(c.Name), TakeOver: c.TakeOver, Renew: c.Renew, Version: c.Version, Scope: c.Scope, Watch: len(c.Rollback.If) > 0, Keys: c.Law}
}

// NoRate is the error for a port whose rate or buffer is neither given nor to be read.
type NoRate struct{ Port, Kind, Missing string }

func (e *NoRate) Error() string {
	return fmt.Sprintf("port %s: its queue discipline %q does not tell its %s: give --%s, or %s in the file", e.Port, e.Kind, e.Missing, e.Missing, e.Missing)
}

// site is a port with these settings, this shaper and MTU, as its law's parameters follow from it.
func (s *PortSettings) site(port string, own shaper, mtu int) (Site, error) {
	site := Site{Rate: cmp.Or(s.Rate, own.Rate), Buffer: cmp.Or(s.Buffer, min(own.Buffer, 1<<32-1)), RTT: s.RTT, MTU: mtu}
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
