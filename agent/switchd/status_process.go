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

// process is the one that holds the lock on a switch's pins, as the kernel lists locks.
type process struct {
	here     bool // there is one, in a PID namespace that the caller sees
	pid      int
	state    byte // of /proc/PID/stat: R, S, T: stopped, ...
	rssBytes uint64
	cpu      time.Duration // that it used
}

// stopped says whether somebody stopped it: SIGSTOP, a debugger.
func (p *process) stopped() bool { return p.state == 'T' || p.state == 't' }

// clockTick is the unit of times in /proc, fixed for all machines.
const clockTick = 10 * time.Millisecond

// lockHolder finds the process that holds the lock on a directory. Taking the lock to see whether it is
// free would get in the way of a process that starts.
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
		// 1: FLOCK  ADVISORY  WRITE 1234 00:1f:20 0 EOF; who waits for it has "->" behind the number
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

// readStat reads what the process uses. One that is gone by now used nothing.
func (p *process) readStat() {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return
	}
	// The name in parentheses may hold anything. Behind it: state is field 3, utime 14, stime 15, rss 24.
	text := string(b)
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 22 {
		return
	}
	number := func(field int) uint64 {
		n, _ := strconv.ParseUint(f[field-3], 10, 64) // the kernel's own: 0 where it is none
		return n
	}
	p.state = f[0][0]
	p.cpu = time.Duration(number(14)+number(15)) * clockTick
	p.rssBytes = number(24) * uint64(os.Getpagesize())
}
