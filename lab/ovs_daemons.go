package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	database  = "ovsdb-server"
	forwarder = "ovs-vswitchd"
	// ovsDir has, in the lab's directory, a run directory for each switch.
	ovsDir = "ovs"
	// ovsPatience limits the time of a program of Open vSwitch. Each needs well under a second.
	ovsPatience = 30 * time.Second
)

// ovsDaemons are the two daemons of one switch: ovsdb-server, which stores its configuration, and ovs-vswitchd,
// which forwards. Their pid files, sockets, database and logs are in dir. They belong to the lab's control group,
// so that cleaning ends them even if the process that started them is dead.
type ovsDaemons struct {
	dir    string
	record *record
}

func (r *record) ovsRunDir(node string) string { return filepath.Join(labsDir, r.Name, ovsDir, node) }

// ovsDaemons returns those of switch n, running or not.
func (l *Lab) ovsDaemons(n *node) (*ovsDaemons, error) {
	d := &ovsDaemons{dir: l.claim.ovsRunDir(n.name), record: &l.claim.record}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the run directory of Open vSwitch: %w", err)
	}
	return d, nil
}

func (d *ovsDaemons) file(name string) string { return filepath.Join(d.dir, name) }

// ovsEnvironment returns variables that point every program of Open vSwitch to the files of one switch.
func ovsEnvironment(dir string) []string {
	var env []string
	for _, name := range []string{"OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"} {
		env = append(env, name+"="+dir)
	}
	return env
}

// run runs a program of Open vSwitch until it ends, in the namespace of the calling thread and in the lab's
// control group. A daemon's parent ends when the child is running, or has reported why it cannot run.
func (d *ovsDaemons) run(program string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), ovsPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), ovsEnvironment(d.dir)...)
	done, err := d.record.adopt(cmd)
	if err != nil {
		return err
	}
	defer done()
	out, err := outputOf(cmd)
	if err != nil {
		return fmt.Errorf("%s: %w: %s", program, cmp.Or(context.Cause(ctx), err), lastLine(string(out)))
	}
	return nil
}

// outputOf runs a command until it ends, and returns what it printed. A daemon that it left behind keeps our end of the
// output pipe open, on a busy machine for seconds. That is no error.
func outputOf(cmd *exec.Cmd) ([]byte, error) {
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrWaitDelay) { // only if the command itself has succeeded
		err = nil
	}
	return out, err
}

func (d *ovsDaemons) vsctl(args ...string) error {
	return d.run("ovs-vsctl", append([]string{"--db=unix:" + d.file("db.sock"), "--no-wait", "--"}, args...)...)
}

// startDatabase creates the database and starts its server, without systemd or files in /etc.
func (d *ovsDaemons) startDatabase() error {
	if err := d.run("ovsdb-tool", "create"); err != nil {
		return err
	}
	return d.start(database, "--remote=punix:"+d.file("db.sock"))
}

// startForwarder starts ovs-vswitchd, which configures itself from its database before it becomes a daemon.
func (d *ovsDaemons) startForwarder() error { return d.start(forwarder) }

// turn is the part of each period in which ovs-vswitchd runs. When it is woken for every frame it polls all its
// ports each time, which costs more than the frame. In a slow lab frames may wait a little, so that it handles
// several at once.
type turn struct{ runtime, period time.Duration }

// turnOf returns the turn of each of this many switches. The period is a hundredth of a ms in the experiment's own
// time; the runtimes add up to 0.8 of the processors. There is no turn if a period is shorter than a few polls of
// all ports.
func turnOf(scale float64, switches, processors int) turn {
	const shortest = 500 * time.Microsecond
	period := time.Duration(scale * float64(10*time.Microsecond))
	if period < shortest || switches == 0 {
		return turn{}
	}
	share := min(0.5, 0.8*float64(processors)/float64(switches))
	return turn{time.Duration(share * float64(period)), period}
}

// attr returns the scheduling of a thread that has the turn.
func (t turn) attr() *unix.SchedAttr {
	return &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_DEADLINE, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
		Runtime: uint64(t.runtime), Deadline: uint64(t.period), Period: uint64(t.period),
	}
}

// preferForwarder gives ovs-vswitchd priority over guests' programs, within its turn if it has one. A real switch
// does not wait for its hosts; the kernel's forwarding, in soft interrupts, does not either.
func (d *ovsDaemons) preferForwarder(t turn) error {
	pid, err := d.pid(forwarder)
	if err != nil {
		return err
	}
	if t.period > 0 {
		if unix.SchedSetAttr(pid, t.attr(), 0) == nil {
			return nil
		} // the kernel has no real-time capacity left: without turns
	}
	return prefer(pid)
}

// prefer gives a thread priority on the processor; 0: the calling thread.
func prefer(thread int) (err error) {
	const highest = -20
	for _, attr := range []unix.SchedAttr{
		{Policy: unix.SCHED_RR, Priority: 1},
		{Policy: unix.SCHED_NORMAL, Nice: highest}, // if our control group has no real-time scheduling
	} {
		attr.Size = unix.SizeofSchedAttr
		if err = unix.SchedSetAttr(thread, &attr, 0); err == nil {
			return nil
		}
	}
	return fmt.Errorf("set the priority of a process of the lab: %w", err)
}

// start starts a daemon and checks that it runs: its pid file names it, and it answers.
func (d *ovsDaemons) start(daemon string, args ...string) error {
	args = append(args, "--pidfile", "--unixctl="+d.file(daemon+".ctl"), "--log-file", "--no-chdir", "--detach",
		"-vconsole:off", "-vsyslog:off")
	if err := d.run(daemon, args...); err != nil {
		return d.withLog(daemon, err)
	}
	control, err := d.dial(daemon)
	if err == nil {
		_, err = control.call("version")
		control.close()
	}
	if err == nil {
		_, err = d.pid(daemon)
	}
	if err != nil {
		return d.withLog(daemon, fmt.Errorf("%s was started, but does not answer: %w", daemon, err))
	}
	return nil
}

// withLog adds the end of a daemon's log to its error.
func (d *ovsDaemons) withLog(daemon string, err error) error {
	return withLog(err, d.file(daemon+".log"))
}

func withLog(err error, file string) error {
	text, unread := os.ReadFile(file)
	if unread != nil || len(text) == 0 {
		return err
	}
	return fmt.Errorf("%w; its log ends with %q", err, lastLine(string(text)))
}

// pid returns the process of a daemon: the one in its pid file, if it belongs to the lab.
func (d *ovsDaemons) pid(daemon string) (int, error) {
	text, err := os.ReadFile(d.file(daemon + ".pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%s has ended", daemon)
	}
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("pid file of %s: %w", daemon, err)
	}
	if ours, err := executed(d.record); err != nil || !slices.Contains(ours, pid) {
		return 0, cmp.Or(err, fmt.Errorf("%s has ended", daemon))
	}
	return pid, nil
}

// alive returns an error for a daemon that has ended.
func (d *ovsDaemons) alive() error {
	for _, daemon := range []string{database, forwarder} {
		if _, err := d.pid(daemon); err != nil {
			return d.withLog(daemon, err)
		}
	}
	return nil
}

// endForwarder ends ovs-vswitchd and waits until it has ended.
func (d *ovsDaemons) endForwarder() error {
	pid, err := d.pid(forwarder)
	if err != nil {
		return nil // nothing to end
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	// The descriptor may be of another process that got this number since: check again.
	if again, err := d.pid(forwarder); err != nil || again != pid {
		return nil
	}
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := unix.PidfdSendSignal(fd, signal, nil, 0); errors.Is(err, unix.ESRCH) {
			return nil
		} else if err != nil {
			return fmt.Errorf("end %s: %w", forwarder, err)
		}
		if ended := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}; len(await(ended, ovsPatience)) == 0 {
			return nil
		}
	}
	return fmt.Errorf("%s (process %d) does not end", forwarder, pid)
}

// ovsControl is a connection to a daemon's control socket, with JSON-RPC 1.0.
type ovsControl struct {
	conn  net.Conn
	in    *json.Decoder
	calls int
}

// dial connects to a daemon. A socket's address has room for 107 bytes, and a directory may be longer.
func (d *ovsDaemons) dial(daemon string) (*ovsControl, error) {
	dir, err := os.Open(d.dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	conn, err := net.DialTimeout("unix", fdPath(dir)+"/"+daemon+".ctl", ovsPatience)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", daemon, err)
	}
	if err := conn.SetDeadline(time.Now().Add(ovsPatience)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &ovsControl{conn: conn, in: json.NewDecoder(conn)}, nil
}

func (c *ovsControl) close() { _ = c.conn.Close() }

// call runs a command of ovs-appctl and returns its output.
func (c *ovsControl) call(command string, args ...string) (string, error) {
	if args == nil {
		args = []string{}
	}
	c.calls++
	question := struct {
		ID     int      `json:"id"`
		Method string   `json:"method"`
		Params []string `json:"params"`
	}{c.calls, command, args}
	var answer struct {
		ID     int     `json:"id"`
		Result *string `json:"result"`
		Error  *string `json:"error"`
	}
	err := json.NewEncoder(c.conn).Encode(question)
	if err == nil {
		err = c.in.Decode(&answer)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", command, err)
	case answer.Error != nil:
		return "", fmt.Errorf("%s: %s", command, strings.TrimSpace(*answer.Error))
	case answer.ID != c.calls || answer.Result == nil:
		return "", fmt.Errorf("%s: the answer is for another request", command)
	}
	return *answer.Result, nil
}
