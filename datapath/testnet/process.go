package testnet

import (
	"os/exec"
	"syscall"
	"testing"

	"weir/internal/testlog"
)

// Process is a child in a namespace, with what it has printed.
type Process struct {
	Cmd  *exec.Cmd
	Log  *testlog.Log
	Done chan struct{} // closed when it has ended
}

// Start starts a program in a namespace. It ends with the test at the latest. Its errors go to the log unless cmd.Stderr is set.
func Start(tb testing.TB, ns *Namespace, cmd *exec.Cmd) *Process {
	tb.Helper()
	p := &Process{Cmd: cmd, Log: new(testlog.Log), Done: make(chan struct{})}
	cmd.Stdout = p.Log
	if cmd.Stderr == nil {
		cmd.Stderr = p.Log
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ns.Must(tb, cmd.Start)
	go func() { _ = cmd.Wait(); close(p.Done) }()
	tb.Cleanup(p.Kill)
	return p
}

// Kill ends the process as a crash would.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.Done
}
