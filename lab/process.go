package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endGrace is the time that a process started by `weir lab exec` has to end after SIGTERM.
const endGrace = 500 * time.Millisecond

// killGrace is the time that killed processes have to end. On a machine with little processor time that is
// seconds.
const killGrace = 30 * time.Second

// processesIn finds the processes in the namespaces of these entries of /run/netns: entry -> "123 (sh)".
func processesIn(entries []string) map[string][]string {
	byInode := map[uint64]string{}
	for _, e := range entries {
		path := filepath.Join(netnsDir, e)
		var s unix.Stat_t
		if isNamespace(path) && unix.Stat(path, &s) == nil {
			byInode[s.Ino] = e
		}
	}
	found := map[string][]string{}
	if len(byInode) == 0 {
		return found
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		var s unix.Stat_t
		if unix.Stat(dir+"/ns/net", &s) != nil {
			continue // has ended
		}
		if e, ok := byInode[s.Ino]; ok {
			found[e] = append(found[e], processName(filepath.Base(dir)))
		}
	}
	return found
}

func processName(pid string) string {
	comm, err := os.ReadFile("/proc/" + pid + "/comm")
	if err != nil {
		return pid
	}
	return fmt.Sprintf("%s (%s)", pid, strings.TrimSpace(string(comm)))
}

// endExecuted ends the processes that `weir lab exec` started, with their children: the members of the lab's exec
// cgroup. It sends SIGTERM first, then SIGKILL until none is left, because a process may start another meanwhile.
func endExecuted(r *record) error {
	left, err := signalExecuted(r, unix.SIGTERM, endGrace)
	for deadline := time.Now().Add(killGrace); err == nil && len(left) > 0; {
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v of the lab do not end", left)
		}
		left, err = signalExecuted(r, unix.SIGKILL, time.Until(deadline))
		if len(left) > 0 {
			time.Sleep(time.Millisecond) // a process that has ended may be listed for a moment
		}
	}
	return err
}

// signalExecuted sends a signal to all processes that `weir lab exec` started, and waits at most limit until they
// have ended. It returns the processes that are left.
func signalExecuted(r *record, signal unix.Signal, limit time.Duration) (left []int, err error) {
	pids, err := executed(r)
	if err != nil || len(pids) == 0 {
		return nil, err
	}
	var ends []unix.PollFd
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // has ended
		}
		defer unix.Close(fd)
		// The descriptor is of the process that was just in the cgroup, or of one that got its number since: check
		// again before the signal.
		if again, err := executed(r); err != nil || !slices.Contains(again, pid) {
			continue
		}
		if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return nil, fmt.Errorf("end process %d: %w", pid, err)
		}
		ends = append(ends, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	await(ends, limit)
	return executed(r)
}

// await waits until all processes have ended, at most for limit, and returns those that have not.
func await(ends []unix.PollFd, limit time.Duration) (alive []unix.PollFd) {
	for deadline := time.Now().Add(limit); len(ends) > 0; {
		rest := time.Until(deadline)
		if rest <= 0 {
			break
		}
		if _, err := unix.Poll(ends, int(rest.Milliseconds())+1); err != nil && err != unix.EINTR {
			break
		}
		alive := ends[:0]
		for _, e := range ends {
			if e.Revents == 0 {
				alive = append(alive, e)
			}
		}
		ends = alive
	}
	return ends
}

// adopt makes a command that is not started yet a member of the lab: cleaning ends it, even if this process is
// dead. The caller must call done after starting it.
func (r *record) adopt(cmd *exec.Cmd) (done func(), err error) {
	dir, err := r.makeCgroup()
	if err != nil {
		return nil, err
	}
	group, err := os.Open(filepath.Join(dir, "exec"))
	if err != nil {
		return nil, err
	}
	cmd.Dir = "/"
	// An interrupt at the terminal is for this process only, which then removes the lab in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd()), Setpgid: true}
	return func() { _ = group.Close() }, nil
}

// executed returns the processes in the lab's exec cgroup.
func executed(r *record) ([]int, error) {
	if r.Cgroup == "" {
		return nil, nil
	}
	data, err := os.ReadFile(filepath.Join(r.Cgroup, "exec", "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("processes of the lab: %w", err)
	}
	var pids []int
	for line := range strings.Lines(string(data)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
