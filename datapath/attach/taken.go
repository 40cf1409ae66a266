package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"weir/internal/lockfile"
)

// Taken is the error for a port where a law of another switch is attached. Two of them at one queue would each count the packets or
// the flows of the other as its own.
type Taken struct {
	Law    string // its name for people
	Port   string
	Switch string // its name; "": it is pinned nowhere that this process sees, for instance a lab's
	Holder Holder // of the switch
	Alive  bool   // a process has the switch
}

func (e *Taken) Error() string {
	switch {
	case e.Switch == "":
		return fmt.Sprintf("port %s: another program of Weir already runs %s here, and is not pinned (a lab's, or a switch in another mount namespace); end it or choose another port", e.Port, e.Law)
	case !e.Alive:
		return fmt.Sprintf("port %s: switch %q left %s here and no process has it; remove it (weir switch --purge --name %s) or choose another port", e.Port, e.Switch, e.Law, e.Switch)
	}
	return fmt.Sprintf("port %s: switch %q (process %d) already runs %s here; stop it or choose another port", e.Port, e.Switch, e.Holder.PID, e.Law)
}

// Sole describes the programs of which a port has one at most, because each must be the first of its chain.
type Sole struct {
	// Laws has the laws of these programs, for people, by the names of the programs in the kernel. The kernel's list of programs at a
	// port so shows who is there, whatever is pinned and whichever process runs.
	Laws map[string]string
	// Tables has the same laws by the name of a table that only they pin. It shows the law of a program whose name this process may not
	// ask for.
	Tables map[string]string
	// Alive reports whether a process sends heartbeats to what is pinned in dir. It is asked where no lock shows a process.
	Alive func(dir string) bool
}

// CheckTaken returns *Taken for the first of the ports where such a program runs that is not pinned in dir. It ignores ports that are
// gone. AttachFirst checks the same, and no program can be attached in between there.
func (s *Sole) CheckTaken(dir string, ports ...PortRef) error {
	pinned, err := ReadPins(dir)
	if err != nil {
		pinned = &Pins{} // none
	}
	for _, p := range ports {
		cookie, chain, err := p.Egress()
		if errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return fmt.Errorf("port %s: programs at its egress: %w", p.Name, err)
		}
		own := pinned.Links[PortPin(cookie, p.Ifindex)].Program()
		if err := s.takenBy(p, cookie, dir, chain, own); err != nil {
			return err
		}
	}
	return nil
}

// AttachFirst puts a program in front of a port's egress chain. The error is *Taken if the chain has the law of a switch; with s nil
// that is not checked. dir is the pin directory of the caller's switch.
func (s *Sole) AttachFirst(p PortRef, dir string, prog *ebpf.Program) (link.Link, error) {
	return atEgress(p, prog, func(cookie uint64, chain *link.QueryResult) (link.Anchor, error) {
		if s == nil {
			return link.Head(), nil
		}
		return link.Head(), s.takenBy(p, cookie, dir, chain, 0)
	})
}

// takenBy returns *Taken if a port's chain has such a program of another switch than that of dir. own is a program of dir.
func (s *Sole) takenBy(p PortRef, cookie uint64, dir string, chain *link.QueryResult, own uint32) error {
	for _, at := range chain.Programs {
		if uint32(at.ID) == own {
			continue
		}
		name, err := nameOf(at.ID)
		law := s.Laws[name]
		if law == "" && !IsPermission(err) {
			continue
		}
		taken := s.ownerOf(p, cookie, uint32(at.ID), dir)
		switch {
		case taken == nil && law != "":
			return &Taken{Law: law, Port: p.Name}
		case taken == nil: // the kernel gives no name, and no switch has it
			continue
		case law != "":
			taken.Law = law
		}
		if taken.Law != "" {
			return taken
		}
	}
	return nil
}

// ownerOf finds the switch that has a program at a port, among those of all laws pinned next to dir. nil: none. Its tables show the law.
func (s *Sole) ownerOf(p PortRef, cookie uint64, program uint32, dir string) *Taken {
	if dir == "" {
		return nil
	}
	others, _ := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(dir)), "*", "*")) // none if dir is no pattern
	for _, other := range others {
		pinned, err := ReadPins(other)
		if err != nil || pinned.Links[PortPin(cookie, p.Ifindex)].Program() != program {
			continue
		}
		held, err := lockfile.Held(other)
		taken := &Taken{Port: p.Name, Switch: filepath.Base(other), Holder: ReadHolder(other), Alive: err == nil && held || s.Alive(other)}
		for table, law := range s.Tables {
			if _, err := os.Stat(filepath.Join(other, table)); err == nil {
				taken.Law = law
			}
		}
		return taken
	}
	return nil
}

// ProgramName returns a program's name, or its id if it has none, or if this process may not ask for it.
func ProgramName(id ebpf.ProgramID) string {
	if name, err := nameOf(id); err == nil && name != "" {
		return name
	}
	return fmt.Sprintf("program %d", id)
}

// nameOf returns a program's name. Without CAP_SYS_ADMIN the kernel refuses it.
func nameOf(id ebpf.ProgramID) (string, error) {
	prog, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return "", err
	}
	defer func() { _ = prog.Close() }()
	info, err := prog.Info()
	if err != nil {
		return "", err
	}
	return info.Name, nil
}

// ProgramsBefore lists the names of the programs that run before another at the egress of a device of the caller's namespace.
func ProgramsBefore(ifindex int, program uint32) (names []string, err error) {
	chain, err := ProgramsAt(ifindex, ebpf.AttachTCXEgress)
	if err != nil {
		return nil, err
	}
	for _, other := range chain {
		if uint32(other.ID) == program {
			break
		}
		names = append(names, ProgramName(other.ID))
	}
	return names, nil
}
