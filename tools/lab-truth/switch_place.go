package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/testlog"
	"weir/lab"
)

// coreSwitch is the node that `weir switch` runs in.
const coreSwitch = "core"

// place is a thread in the core switch's network namespace with its own BPF file system at the usual path: weir
// runs there as on a switch, and other programs see none of its files.
type place struct {
	jobs chan func()
	weir string // path of the program
}

func newPlace(l *lab.Lab, weir string) (*place, error) {
	var ns *os.File
	err := l.Enter(coreSwitch, func() (err error) {
		ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	p := &place{jobs: make(chan func()), weir: weir}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespaces
		for f := range p.jobs {
			f()
		}
	}()
	err = p.do(func() error {
		return errors.Join(
			unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET), unix.Unshare(unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, ""),
		)
	})
	if err != nil {
		p.close()
		return nil, fmt.Errorf("a place in %s: %w", coreSwitch, err)
	}
	return p, nil
}

func (p *place) close() { close(p.jobs) }

// do runs f on that thread.
func (p *place) do(f func() error) error {
	done := make(chan error, 1)
	p.jobs <- func() { done <- f() }
	return <-done
}

// command prepares weir for that thread. It dies with its starter's thread.
func (p *place) command(out *testlog.Log, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(p.weir, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, p.do(cmd.Start)
}

// daemon is a running `weir switch`.
type daemon struct {
	cmd  *exec.Cmd
	log  testlog.Log
	done chan error
}

// startDaemon starts weir switch on these devices and waits until it is ready.
func startDaemon(ctx context.Context, p *place, ports []string) (*daemon, error) {
	d := &daemon{done: make(chan error, 1)}
	var err error
	if d.cmd, err = p.command(&d.log, append([]string{"switch"}, ports...)...); err != nil {
		return nil, err
	}
	go func() { d.done <- d.cmd.Wait() }()
	for end := time.Now().Add(20 * time.Second); !strings.Contains(d.log.String(), "msg=begun"); {
		err := pause(ctx, 10*time.Millisecond)
		select {
		case e := <-d.done:
			return nil, fmt.Errorf("weir switch ended: %w", errors.Join(e, errors.New(d.log.String())))
		default:
		}
		if err == nil && time.Now().After(end) {
			err = fmt.Errorf("weir switch does not start: %s", d.log.String())
		}
		if err != nil {
			return nil, errors.Join(err, d.kill())
		}
	}
	return d, nil
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

// stop ends it as an operator would.
func (d *daemon) stop() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-d.done:
		return err
	case <-time.After(10 * time.Second):
		return errors.Join(fmt.Errorf("weir switch does not end: %s", d.log.String()), d.kill())
	}
}

func (d *daemon) kill() error {
	err := d.cmd.Process.Kill()
	var killed *exec.ExitError
	if e := <-d.done; !errors.As(e, &killed) {
		err = errors.Join(err, e)
	}
	return err
}

// buildWeir builds the program into its own directory, because ./weir may be of other sources.
func buildWeir(ctx context.Context) (path string, remove func() error, err error) {
	dir, err := os.MkdirTemp("", "weir-truth-")
	if err != nil {
		return "", nil, err
	}
	remove = func() error { return os.RemoveAll(dir) }
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", dir+"/weir", "./cmd/weir")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", nil, errors.Join(fmt.Errorf("build weir: %w: %s", err, out), remove())
	}
	return dir + "/weir", remove, nil
}
