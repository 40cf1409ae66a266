package fairq

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/internal/lockfile"
)

// Names of the switch program in the kernel: one that may limit flows, and one that only observes. The kernel's
// list of programs at a port so shows who is there, whatever is pinned and whichever process runs.
const (
	switchProgram  = "weir_fairq"
	observeProgram = "weir_observe"
)

// Taken is the error for a port where FairQ of another switch is attached. Two laws on one queue would each
// count the flows of the other as its own.
type Taken struct {
	Port   string
	Switch string        // its name; "": it is pinned nowhere that this process sees, for instance a lab's
	Holder attach.Holder // of the switch
	Alive  bool          // a process has the switch
}

func (e *Taken) Error() string {
	switch {
	case e.Switch == "":
		return fmt.Sprintf("port %s: another program of Weir already runs FairQ here, and is not pinned (a lab's, or a switch in another mount namespace); end it or choose another port", e.Port)
	case !e.Alive:
		return fmt.Sprintf("port %s: switch %q left FairQ here and no process has it; remove it (weir switch --purge --name %s) or choose another port", e.Port, e.Switch, e.Switch)
	}
	return fmt.Sprintf("port %s: switch %q (process %d) already runs FairQ here; stop it or choose another port", e.Port, e.Switch, e.Holder.PID)
}

// CheckTaken returns *Taken for the first of the ports where FairQ runs that is not pinned in dir. Attach
// checks the same, and no program can be attached in between there. It ignores ports that are gone.
func CheckTaken(dir string, ports ...attach.PortRef) error {
	pinned, err := attach.ReadPins(dir)
	if err != nil {
		pinned = &attach.Pins{} // none
	}
	for _, p := range ports {
		cookie, chain, err := p.Egress()
		if errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return fmt.Errorf("port %s: programs at its egress: %w", p.Name, err)
		}
		own := pinned.Links[attach.PortPin(cookie, p.Ifindex)].Program()
		if err := takenBy(p, cookie, dir, chain, own); err != nil {
			return err
		}
	}
	return nil
}

// attachFirst puts a program in front of a port's egress chain. If FairQ of another switch is in it, the error
// is *Taken. The kernel attaches only if the chain is still the one that was read.
func (f *Attachment) attachFirst(p attach.PortRef, cookie uint64, prog *ebpf.Program) (link.Link, error) {
	return attach.Again(unix.ESTALE, func() (l link.Link, err error) {
		_, chain, err := p.Egress()
		if err != nil {
			return nil, err
		}
		if !f.cfg.Observe {
			if err := takenBy(p, cookie, f.cfg.Pin, chain, 0); err != nil {
				return nil, err
			}
		}
		err = p.In(func() (err error) {
			l, err = link.AttachTCX(link.TCXOptions{
				Interface: p.Ifindex, Program: prog, Attach: ebpf.AttachTCXEgress, Anchor: link.Head(), ExpectedRevision: chain.Revision,
			})
			return err
		})
		return l, err
	})
}

// takenBy returns *Taken if a port's chain has FairQ of another switch than that of dir. own is a program of
// dir.
func takenBy(p attach.PortRef, cookie uint64, dir string, chain *link.QueryResult, own uint32) error {
	for _, at := range chain.Programs {
		if uint32(at.ID) == own || programName(at.ID) != switchProgram {
			continue
		}
		return ownerOf(p, cookie, uint32(at.ID), dir)
	}
	return nil
}

// ownerOf finds the switch that has a program at a port, among those pinned in the same parent directory as
// dir.
func ownerOf(p attach.PortRef, cookie uint64, program uint32, dir string) *Taken {
	taken := &Taken{Port: p.Name}
	if dir == "" {
		return taken
	}
	entries, err := os.ReadDir(filepath.Dir(dir))
	if err != nil {
		return taken
	}
	for _, e := range entries {
		other := filepath.Join(filepath.Dir(dir), e.Name())
		pinned, err := attach.ReadPins(other)
		if err != nil || pinned.Links[attach.PortPin(cookie, p.Ifindex)].Program() != program {
			continue
		}
		taken.Switch, taken.Holder, taken.Alive = e.Name(), attach.ReadHolder(other), alive(other)
		return taken
	}
	return taken
}

// alive reports whether a process has a pin directory: by its lock, or by its heartbeat if an older version
// does not mark its lock.
func alive(dir string) bool {
	if held, err := lockfile.Held(dir); err == nil && held {
		return true
	}
	v, err := Open(dir)
	if err != nil {
		return false
	}
	defer func() { _ = v.Close() }()
	var c fairqControl
	if err := v.maps.Controls.Lookup(uint32(0), &c); err != nil {
		return false
	}
	return c.Releasing == 0 && attach.Age(c.HeartbeatNs).Nanoseconds() < int64(c.LeaseNs)
}
