// Package agentd is `weir agent`: a process on a hypervisor, a switch or both. It reports to controllers over the bus, and carries
// out their grants. docs/agent.md describes it.
//
//	file.go, check.go       files of kind: Agent
//	agent.go, reload.go     the process: begin, follow the devices, reload, end
//	link.go                 its end of the bus: state, inventory
//	hostrole.go, grants.go  role host: VMs and grants
//	half.go                 a law's half at the host: rates of VMs from a controller's marks, or those of other hosts
//	pairs.go                marks that hosts return to one another
//	deadlines.go, declare.go  what programs of VMs declare: quotas, and their sockets
//	metadata.go             the same at a link-local address
//	switchrole.go           role switch: ports
//	readings.go, progress.go  telemetry every T
//	laws.go                 laws of a switch in the same process
//	control.go, status.go, metrics.go
package agentd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"weir/agent/metrics"
	"weir/agent/switchd"
	"weir/bus/weirv1"
	"weir/datapath/attach"
	"weir/datapath/host"
	"weir/law"
)

// pinRoot is the directory where agents pin what outlives them, each in a directory of its name. Tests mount a BPF file system
// of their own there.
const pinRoot = "/sys/fs/bpf/weir/agent"

const (
	lookAtMost  = 50 * time.Millisecond // between two looks at the devices
	lookAtLeast = time.Second           // in case a report of a change is lost
	claimEvery  = 100 * time.Millisecond
)

// Options belong to a process: no file contains them, and no reload changes them.
type Options struct {
	TakeOver bool // from the running process of this name
	// Unpinned: programs and tables end with the process, and no other process can take over.
	Unpinned bool
	Version  string
	Hangup   <-chan os.Signal // signals to read File again; nil: none
	Log      *slog.Logger     // nil: none
	Laws     *switchd.Agent   // the laws that a switch's file can name
	Specs    law.Specs        // the laws that host.laws can name
}

// OneProcessor limits this process to one processor if its agent has only the role host: it waits for commands, which come to all hosts at
// the same time. With more, Go wakes further threads for each command, which look for work that is not there. The environment variable GOMAXPROCS
// has precedence.
func (c *Config) OneProcessor() {
	if c.Switch == nil && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
}

// agent is a running agent. One goroutine owns it.
type agent struct {
	cfg   *Config
	log   *slog.Logger
	begun time.Time
	lock  *attach.PinLock
	watch *switchd.Watch

	host    *hostRole   // nil: not this role
	ports   *switchRole // nil: not this role
	laws    *laws       // nil: none
	planned *planned    // of laws that policies choose; nil: not so
	link    *link
	frames  *frames // nil: grants come by the bus
	metrics *metrics.Server
	control *http.Server // nil: an earlier process still has the socket
	asked   chan request
	events  counters
	lived   time.Time       // when systemd's watchdog was reset
	names   map[string]bool // of the devices in cfg

	stop    chan struct{} // ends the goroutines below
	running sync.WaitGroup
}

// counters counts reloads.
type counters struct{ reloads, refused uint64 }

// Run runs an agent until ctx is done. Then it releases all grants, and removes everything that it made. It returns nil, too, when
// another process takes over. Typed errors: *attach.Busy.
func Run(ctx context.Context, c *Config) (err error) {
	log := c.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	files, name, err := certificate(c.Bus.Keys, c.Name, log)
	if err != nil {
		return err
	}
	c.Name = name
	if c.State == "" {
		c.State = filepath.Join(stateDir, "agent-"+name+".term")
	}
	if err := os.MkdirAll(filepath.Dir(c.State), 0o700); err != nil {
		return fmt.Errorf("keep the highest term: %w", err)
	}
	a := &agent{cfg: c, log: log.With("agent", name), begun: time.Now(), asked: make(chan request), stop: make(chan struct{}), names: c.deviceNames()}
	// Subscribe first, so that no change between the first look and this one is missed.
	if a.watch, err = switchd.NewWatch(); err != nil {
		return err
	}
	defer a.watch.Close()
	if err := a.take(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.release()) }()
	if c.Host != nil {
		a.host = newHostRole(c.Host, a.hostPins(), a.log, a.alive)
		if a.host.half, err = newHalf(c.Host, c.Specs, a.log); err != nil {
			return err
		}
		if a.host.half != nil {
			a.host.half.role = a.host
		}
		if d := c.Host.Deadlines; d != nil {
			a.host.deadlines = newDeadlines(d, c.Host.Rate, clock, a.log)
			a.host.sockets = newSockets(cmp.Or(d.Dir, filepath.Join(deadlinesDir, name)), a.host.deadlines, a.log)
			a.host.metadata = newMetadataRole(d.Metadata, a.host.deadlines, a.log)
		}
	}
	if c.Switch != nil && c.Switch.ByPolicy {
		a.planned = newPlanned(strings.TrimSuffix(c.State, ".term")+".switch", c, a.log)
	}
	if a.link, err = newLink(c, files, a.host, a.planned, a.log); err != nil {
		return err
	}
	if a.host != nil && a.host.half != nil && a.host.half.pairs != nil {
		a.host.half.pairs.send = a.link.SendMarks
	}
	if a.frames, err = newFrames(c, a.log, a.link); err != nil {
		a.link.Close()
		return err
	}
	if c.Switch != nil {
		if a.ports, err = newSwitchRole(c.Switch, a.log, a.link, a.alive); err != nil {
			a.link.Close()
			return err
		}
	}
	if err := a.link.Conn().Answer(a.answer); err != nil {
		a.link.Close()
		return err
	}
	if err := a.serveMetrics(); err != nil {
		a.link.Close()
		return err
	}
	a.begin(ctx)
	if a.work(ctx) {
		return a.leave()
	}
	return a.end()
}

// pins is the agent's directory of pins.
func (a *agent) pins() string { return filepath.Join(pinRoot, a.cfg.Name) }

// hostPins is the directory of the host's programs and tables; "": they end with the process.
func (a *agent) hostPins() string {
	if a.cfg.Unpinned {
		return ""
	}
	return filepath.Join(a.pins(), "host")
}

// take locks the agent's name, so that no two processes have it. It asks a running one to leave, if the options say so.
func (a *agent) take() (err error) {
	if a.cfg.Unpinned {
		return nil
	}
	dir := a.pins()
	if err := attach.MakePinDir(dir); err != nil {
		return err
	}
	a.lock, err = attach.LockPins(dir, a.cfg.Version, a.cfg.TakeOver, func() error {
		if a.cfg.Host == nil {
			return nil
		}
		return host.Rehearse(host.Config{Uplink: attach.PortRef{Name: a.cfg.Host.Uplink}})
	})
	return err
}

// begin starts the roles, and the goroutines next to them. Reports begin while programs are loaded: a controller's commands answer
// them, so grants continue sooner when this process takes over.
func (a *agent) begin(ctx context.Context) {
	a.running.Go(func() { a.link.run(a.stop) })
	if a.host != nil {
		a.running.Go(func() { a.host.heartbeats(a.stop) })
		if a.host.half != nil {
			a.running.Go(func() { a.host.half.run(a.stop) })
			if a.host.half.pairs != nil {
				a.running.Go(func() { a.host.half.runPairs(a.stop) })
			}
		}
		if a.host.deadlines != nil {
			a.running.Go(func() { a.link.sendDeadlines(a.stop) })
		}
	}
	if a.ports != nil {
		a.running.Go(func() { a.ports.run(a.stop) })
	}
	a.follow()
	a.listen()
	if s := a.cfg.Switch; s != nil && s.File != "" {
		a.laws = newLaws(s.File, &a.cfg.Options, a.log)
	}
	if a.planned != nil {
		a.laws = a.planned.laws
		a.running.Go(func() { a.planned.follow(a.stop) })
	}
	if a.laws != nil {
		a.running.Go(func() { a.laws.run(ctx) })
	}
	a.log.Info("begun", "version", a.cfg.Version, "pinned", a.pins())
	a.notify(daemon.SdNotifyReady)
}

// work follows the devices until ctx is done, or another process asks for the agent's name: then it returns true.
func (a *agent) work(ctx context.Context) (taken bool) {
	look, claims := time.NewTicker(lookAtLeast), time.NewTicker(claimEvery)
	defer look.Stop()
	defer claims.Stop()
	changed := a.watch.Changed()
	var pause <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-claims.C:
			if a.lock == nil {
				continue
			}
			if claimed, err := a.lock.Claimed(); err != nil {
				a.log.Warn("cannot read which process takes over", "error", err)
			} else if claimed {
				return true
			}
			continue
		case <-a.cfg.Hangup:
			a.reload()
			continue
		case ask := <-a.asked:
			ask(a)
			continue
		case <-pause:
			pause, changed = nil, a.watch.Changed()
			continue
		case <-changed:
			// Further changes wait in the channel.
			pause, changed = time.After(lookAtMost), nil
		case <-look.C:
			a.listen()
			a.alive()
		}
		a.follow()
	}
}

// devices lists the devices that the configuration names.
func (a *agent) devices() (map[string]switchd.Device, error) {
	return switchd.Devices(func(name string) bool { return a.names[name] }, a.ports != nil)
}

// follow adapts both roles to the devices that exist.
func (a *agent) follow() {
	devices, err := a.devices()
	if err != nil {
		a.log.Warn("cannot look at the devices", "error", err)
		return
	}
	if a.host != nil {
		a.host.follow(devices, &a.cfg.Options)
		a.frames.follow(a.cfg.Host.Uplink, devices[a.cfg.Host.Uplink].Ifindex)
	}
	if a.ports != nil {
		a.ports.follow(devices)
	}
	a.changed()
}

// changed reports what the agent has, if it is another than before.
func (a *agent) changed() {
	host, sw := &weirv1.Inventory{}, &weirv1.Inventory{}
	if a.host != nil {
		host.Guests = a.host.guests()
		host.Hypervisor = &weirv1.Hypervisor{Rate: uint64(a.host.cfg.Rate), Labels: a.host.cfg.Labels, Frames: a.frames.address(), FramesForm: string(a.host.cfg.Frames), Switches: a.host.cfg.Switches}
	}
	if a.ports != nil {
		sw.Ports = a.ports.inventory()
	}
	if a.planned != nil {
		sw.Laws = a.cfg.Laws.PolicyLaws()
	}
	a.link.changed(sw, host)
}

// alive resets systemd's watchdog. A call a second is enough.
func (a *agent) alive() {
	if now := time.Now(); now.Sub(a.lived) >= lookAtLeast/2 {
		a.lived = now
		a.notify(daemon.SdNotifyWatchdog)
	}
}

// notify reports the state of the process to systemd, if it runs under it.
func (a *agent) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		a.log.Warn("cannot notify systemd", "error", err)
	}
}

// stopAll ends all goroutines next to the roles. No command is obeyed after it.
func (a *agent) stopAll() {
	a.notify(daemon.SdNotifyStopping)
	close(a.stop)
	a.frames.close()
	a.link.Close()
	a.link.tracer.end()
	if a.control != nil {
		_ = a.control.Close()
	}
	a.metrics.Close()
}

// leave leaves everything to the process that takes over. That process takes the laws of the switch after the agent's name.
func (a *agent) leave() error {
	a.log.Info("another process takes over: leaving the agent to it")
	a.stopAll()
	var errs []error
	if a.host != nil {
		errs = append(errs, a.host.leave())
	}
	errs = append(errs, a.release())
	a.laws.leave()
	a.running.Wait()
	if a.ports != nil {
		errs = append(errs, a.ports.end())
	}
	return errors.Join(errs...)
}

// end releases all grants and removes everything.
func (a *agent) end() error {
	a.stopAll()
	a.laws.end()
	var errs []error
	if a.host != nil {
		errs = append(errs, a.host.end())
	}
	a.running.Wait()
	if a.ports != nil {
		errs = append(errs, a.ports.end())
	}
	if !a.cfg.Unpinned {
		errs = append(errs, removePins(a.pins()))
	}
	errs = append(errs, a.release())
	if err := errors.Join(errs...); err != nil {
		return err
	}
	a.log.Info("ended")
	return nil
}

// release gives the agent's name free.
func (a *agent) release() error {
	if a.lock == nil {
		return nil
	}
	lock := a.lock
	a.lock = nil
	return lock.Close()
}

// removePins removes an agent's directory of pins, and the shared ones if they are empty.
func removePins(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "host")); err == nil {
		return fmt.Errorf("an earlier process had the role host, and its programs are still attached: remove them with weir agent --purge and a file with that role (%s)", dir)
	}
	if err := errors.Join(attach.RemoveTables(dir), attach.RemovePinDir(dir)); err != nil {
		return err
	}
	_ = os.Remove(pinRoot) // fails if the directory is not empty
	_ = os.Remove(filepath.Dir(pinRoot))
	return nil
}

// Purge removes what an agent left pinned, also after its process was killed: programs, tables, and the queue at the uplink. The
// uplink must exist. It returns *attach.Busy while a process is running.
func Purge(c *Config) (err error) {
	_, name, err := certificate(c.Bus.Keys, c.Name, nil)
	if err != nil {
		return err
	}
	c.Name = name
	a := &agent{cfg: c, log: slog.New(slog.DiscardHandler)}
	if err := a.take(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.release()) }()
	if c.Host != nil {
		found, err := switchd.Devices(func(device string) bool { return device == c.Host.Uplink }, false)
		if err != nil {
			return err
		}
		d, there := found[c.Host.Uplink]
		if !there {
			return fmt.Errorf("there is no device %s, the uplink", c.Host.Uplink)
		}
		h, err := host.Open(host.Config{Uplink: attach.PortRef{Name: c.Host.Uplink, Ifindex: d.Ifindex}, Rate: c.Host.Rate, Pin: filepath.Join(a.pins(), "host")})
		if err != nil {
			return err
		}
		if err := h.Purge(); err != nil {
			return err
		}
	}
	return removePins(a.pins())
}
