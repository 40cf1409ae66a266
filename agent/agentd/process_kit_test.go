package agentd_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"

	"weir/agent/agentd"
	"weir/agent/switchd"
	"weir/datapath/testnet"
)

// agent is a running agent.
type agent struct {
	m    *machine
	cmd  *exec.Cmd
	done chan error
}

// start starts the agent with a file.
func (m *machine) start(file string, env ...string) *agent {
	m.t.Helper()
	m.write(file)
	a := &agent{m: m, cmd: exec.Command(os.Args[0]), done: make(chan error, 1)}
	a.cmd.Env = append(append(os.Environ(), fileVariable+"="+m.file), env...)
	a.cmd.Stderr = m.log
	m.Host.Must(m.t, a.cmd.Start)
	go func() { a.done <- a.cmd.Wait() }()
	m.t.Cleanup(a.kill)
	return a
}

// another starts a second agent, which must fail, and returns what it says.
func (m *machine) another() string {
	m.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fileVariable+"="+m.file)
	var said []byte
	m.Host.Must(m.t, func() error {
		var err error
		if said, err = cmd.CombinedOutput(); err == nil {
			return errors.New("a second agent ran and ended")
		}
		return nil
	})
	return string(said)
}

// status reads the agent's status; nil: it does not answer.
func (m *machine) status() *agentd.Status {
	ctx, cancel := context.WithTimeout(m.t.Context(), 10*time.Second)
	defer cancel()
	s, err := agentd.ReadStatus(ctx, agentName, m.Host.Enter)
	if err != nil {
		return nil
	}
	return s
}

// until waits until the status is as wanted.
func (m *machine) until(what string, wanted func(*agentd.Status) bool) (last *agentd.Status) {
	m.t.Helper()
	testnet.Until(m.t, what, func() bool {
		last = m.status()
		return last != nil && wanted(last)
	})
	return last
}

// reload has the agent read another file, and returns its answer.
func (m *machine) reload(file string) *switchd.Answer {
	m.t.Helper()
	m.write(file)
	a, err := agentd.Reload(m.t.Context(), agentName, m.Host.Enter)
	if err != nil {
		m.t.Fatal(err)
	}
	return a
}

// end ends the agent with SIGTERM, and waits for it.
func (a *agent) end() {
	a.m.t.Helper()
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		a.m.t.Fatal(err)
	}
	err := <-a.done
	a.done <- err
	if err != nil {
		a.m.t.Errorf("the agent ended with %v", err)
	}
}

// kill kills the agent, and waits for it.
func (a *agent) kill() {
	_ = a.cmd.Process.Kill()
	err := <-a.done
	a.done <- err
}
