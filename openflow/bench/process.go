package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// controller is a process under measurement, on a processor of its own.
type controller struct {
	cmd    *exec.Cmd
	port   int
	kernel int // process of the kernel that works off what the processor's network interrupts left; 0: not to be seen
}

// start runs a controller that prints the port that it listens at.
func start(cpu int, name string, args ...string) (*controller, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := on(cpu, cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c := &controller{cmd: cmd, kernel: kernelThread(cpu)}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("%s said no port: %w", name, err)
	}
	if c.port, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		c.stop()
		return nil, fmt.Errorf("%s said no port: %w", name, err)
	}
	return c, nil
}

// kernelThread finds ksoftirqd of a processor. It does work for the controller's writes, so its time counts as well.
func kernelThread(cpu int) int {
	names, _ := filepath.Glob("/proc/[0-9]*/comm") // the pattern is good
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && string(b) == fmt.Sprintf("ksoftirqd/%d\n", cpu) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name))) // digits, by the pattern
			return pid
		}
	}
	return 0
}

// keepTo keeps this process, all its threads, on one processor.
func keepTo(cpu int) error {
	var only unix.CPUSet
	only.Set(cpu)
	threads, err := os.ReadDir("/proc/self/task") // those to come inherit it
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, &only); err != nil {
			return fmt.Errorf("keep to processor %d: %w", cpu, err)
		}
	}
	return nil
}

// on runs f on a thread that is kept on one processor, as is whatever f starts.
func on(cpu int, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var was, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &was); err != nil {
		return err
	}
	only.Set(cpu)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return fmt.Errorf("keep to processor %d: %w", cpu, err)
	}
	return errors.Join(f(), unix.SchedSetaffinity(0, &was))
}

func (c *controller) stop() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// cpu is the processor time that it has used, user and system, in steps of 10 ms, and the kernel for it.
func (c *controller) cpu() (time.Duration, error) {
	used, err := cpuOf(c.cmd.Process.Pid)
	if err != nil || c.kernel == 0 {
		return used, err
	}
	more, err := cpuOf(c.kernel)
	return used + more, err
}

func cpuOf(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	const utime, stime, perSecond = 11, 12, 100 // proc(5), counted behind the name; USER_HZ
	user, err := strconv.Atoi(fields[utime])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[stime])
	return time.Duration(user+system) * time.Second / perSecond, err
}

// memory is its resident set, in bytes.
func (c *controller) memory() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}
