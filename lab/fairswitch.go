package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/experiment"
)

// hardwareProgram forwards the frames of a switch through the Verilated FairSwitch (rtl/lab). It is a separate program, so
// that Weir needs no C++ compiler.
const hardwareProgram = "weir-rtl-switch"

const (
	// hardwareQueues is the number of output queues of the block, as `make rtl-switch` builds it.
	hardwareQueues = 8
	// hardwareClock is the frequency of the block's clock in the time of the machine. The model runs 4 million cycles a
	// second on one processor of a small machine, half of that while others use its caches.
	hardwareClock = 1_250_000
	// hardwareBits pass the block in a cycle.
	hardwareBits = 64
	// hardwareLag is the most that the block may be behind the clock, in the experiment's own time. A run with more is void.
	hardwareLag = time.Millisecond
	// hardwarePatience is how long the program may take to start.
	hardwarePatience = 30 * time.Second
	hardwareDir      = "rtl"
)

// fairswitch makes a switch a FairSwitch: a program reads frames from the ports, passes them through the block, and
// sends them. The queues are those of the ports, as with every other kind of switch.
type fairswitch struct {
	program string
	scale   float64 // how many times slower the lab is than the experiment
}

// findHardware returns the program, in the directory of this one or on PATH.
func findHardware() (string, error) {
	if self, err := os.Executable(); err == nil {
		if path := filepath.Join(filepath.Dir(self), hardwareProgram); unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(hardwareProgram)
	if err != nil {
		return "", fmt.Errorf("topology.switch rtl needs %s in the directory of this program or on PATH: run 'apt-get install verilator g++' and 'make rtl-switch', or use bridge: %w", hardwareProgram, err)
	}
	return filepath.Abs(path)
}

// check returns an error for a network that the block cannot carry.
func (f *fairswitch) check(p *plan) (err error) {
	if p.paths {
		return errors.New("topology.switch rtl: this network has several paths, but the switch has one port for each address: use bridge")
	}
	switches := 0
	for _, n := range p.nodes {
		if n.kind != experiment.Switch {
			continue
		}
		switches++
		if len(n.ports) > hardwareQueues {
			return fmt.Errorf("topology.switch rtl: %s has %d ports, and the block has %d queues: use fewer servers, or bridge", n.name, len(n.ports), hardwareQueues)
		}
		if err := fits(n); err != nil {
			return err
		}
	}
	if most := max(1, runtime.NumCPU()-1); switches > most {
		return fmt.Errorf("topology.switch rtl: %d switches are more than this machine runs in real time (%d): use a dumbbell, or bridge", switches, most)
	}
	if _, err := cgroup2Root(); err != nil {
		return fmt.Errorf("topology.switch rtl: a cgroup is needed to find its processes again: %w", err)
	}
	f.program, err = findHardware()
	return err
}

// fits returns an error if the frames that arrive at all ports of n together are more than 0.8 of what the block carries.
// The rest is for words that a frame does not fill.
func fits(n *node) error {
	sum := 0.0
	for _, p := range n.ports {
		if p.rate == 0 {
			return fmt.Errorf("topology.switch rtl: port %s has no rate: set network.rate", p.name)
		}
		sum += float64(p.rate)
	}
	if most := 0.8 * hardwareClock * hardwareBits; sum > most {
		return fmt.Errorf("topology.switch rtl: the ports of %s have %.0f Mbit/s together, and the model carries %.0f: lower the rates, or raise time_scale", n.name, sum/1e6, most/1e6)
	}
	return nil
}

// finishChecksums: a packet socket does not calculate a checksum that is left to the hardware.
func (*fairswitch) finishChecksums() bool { return true }

func (r *record) hardwareFile(node, kind string) string {
	return filepath.Join(labsDir, r.Name, hardwareDir, node+"."+kind)
}

// setUp starts the program of a switch, in the namespace of the calling thread, and waits until it forwards. It ends with the
// lab's control group.
func (f *fairswitch) setUp(l *Lab, _ *netlink.Handle, n *node) error {
	if err := os.MkdirAll(filepath.Join(labsDir, l.claim.Name, hardwareDir), 0o700); err != nil {
		return fmt.Errorf("make the directory of the FairSwitch: %w", err)
	}
	log, err := os.OpenFile(l.claim.hardwareFile(n.name, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(f.program, f.arguments(l, n)...)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	done, err := l.claim.adopt(cmd)
	if err != nil {
		return err
	}
	defer done()
	if err := preferred(cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", f.program, err)
	}
	// Above the controllers and agents of labs: one of those may keep the processor for a turn, 100 ms. Best effort.
	above := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 2}
	_ = unix.SchedSetAttr(cmd.Process.Pid, &above, 0)
	err = awaitReady(out, hardwarePatience)
	if err != nil {
		_ = cmd.Process.Kill()
	}
	go func() { _ = cmd.Wait() }()
	if err != nil {
		return withLog(fmt.Errorf("%s was started, but does not forward: %w", f.program, err), l.claim.hardwareFile(n.name, "log"))
	}
	return nil
}

// awaitReady reads the line of a program that forwards, for at most limit. out is a pipe.
func awaitReady(out io.Reader, limit time.Duration) error {
	pipe, ok := out.(interface{ SetReadDeadline(t time.Time) error })
	if !ok {
		return fmt.Errorf("%T has no deadline", out)
	}
	if err := pipe.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("it wrote no line within %v", limit)
	case err != nil:
		return fmt.Errorf("read its line: %w", err)
	case line != "ready\n":
		return fmt.Errorf("it wrote %q", line)
	}
	return nil
}

func (f *fairswitch) arguments(l *Lab, n *node) []string {
	args := []string{"--control", l.claim.hardwareFile(n.name, "ctl"), "--clock", fmt.Sprint(hardwareClock)}
	index := map[*port]int{}
	for i, p := range n.ports {
		index[p] = i
		args = append(args, "--port", fmt.Sprintf("%s=%d", p.ifname, tbfLimit(p)))
	}
	towards := l.plan.towards(n)
	for _, guest := range l.plan.guests() {
		if ports := towards[guest]; len(ports) > 0 {
			args = append(args, "--to", fmt.Sprintf("%s=%d", guest.ports[0].mac, index[ports[0]]))
		}
	}
	return args
}

// troubleOfHardware returns which FairSwitch has ended, lost frames, or was so late that the run is void; and, in notes, how
// late the others were.
func (l *Lab) troubleOfHardware() (lines, notes []string) {
	f, ok := l.fabric.(*fairswitch)
	if !ok {
		return nil, nil
	}
	for _, n := range l.plan.nodes {
		if n.kind != experiment.Switch {
			continue
		}
		where := fmt.Sprintf("topology.switch rtl on %s: ", n.name)
		s, err := l.hardwareStats(n.name)
		if err != nil {
			lines = append(lines, where+withLog(err, l.claim.hardwareFile(n.name, "log")).Error())
			continue
		}
		if words := s.trouble(f.scale); len(words) > 0 {
			lines = append(lines, where+strings.Join(words, "; "))
			continue
		}
		notes = append(notes, where+s.late(f.scale))
	}
	return lines, notes
}

func newHardware(scale float64) fabric { return &fairswitch{scale: max(1, scale)} }
