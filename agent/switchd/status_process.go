package switchd

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is the process that holds the lock on a switch's pins, from the kernel's list of locks.
type process struct {
	here     bool // it exists, in a PID namespace that the caller can see
	pid      int
	state    byte // from /proc/PID/stat: R, S, T (stopped), ...
	rssBytes uint64
	cpu      time.Duration // CPU time used
}

// stopped reports whether it is stopped, by SIGSTOP or a debugger.
func (p *process) stopped() bool { return p.state == 'T' || p.state == 't' }

// clockTick is the unit of times in /proc, the same on all architectures.
const clockTick = 10 * time.Millisecond

// lockHolder finds the process that holds the lock on a directory. It reads /proc/locks, because taking the lock to
// test it would disturb a process that starts.
func lockHolder(dir string) (p process) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return p
	}
	file, err := os.Open("/proc/locks")
	if err != nil {
		return p
	}
	defer func() { _ = file.Close() }()
	inode := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		// Format: "1: FLOCK  ADVISORY  WRITE 1234 00:1f:20 0 EOF"; waiting processes have "->" behind the number.
		f := strings.Fields(lines.Text())
		if len(f) < 6 || f[1] != "FLOCK" || f[5] != inode {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
			p.here, p.pid = true, pid
			p.readStat()
		}
		return p
	}
	return p
}

// readStat reads memory and CPU time. They stay 0 if the process has ended.
func (p *process) readStat() {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return
	}
	// The name in parentheses may contain any character. After it, state is field 3, utime 14, stime 15, rss 24.
	text := string(b)
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 22 {
		return
	}
	number := func(field int) uint64 {
		n, _ := strconv.ParseUint(f[field-3], 10, 64) // written by the kernel; 0 if it is not a number
		return n
	}
	p.state = f[0][0]
	p.cpu = time.Duration(number(14)+number(15)) * clockTick
	p.rssBytes = number(24) * uint64(os.Getpagesize())
}
