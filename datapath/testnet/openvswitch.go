package testnet

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"weir/internal/nic"
)

// OpenVSwitch is Open vSwitch in user space, in a namespace, with files of its own. One process has all bridges.
type OpenVSwitch struct {
	Dir      string
	Switches *Process // ovs-vswitchd
	tb       testing.TB
	ns       *Namespace
}

// openVSwitchPrograms are what OpenVSwitch runs.
var openVSwitchPrograms = [...]string{"ovs-vswitchd", "ovsdb-server", "ovs-vsctl", "ovsdb-tool"}

// HasOpenVSwitch returns an error if this machine lacks a program of Open vSwitch.
func HasOpenVSwitch() error {
	for _, name := range openVSwitchPrograms {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("needs Open vSwitch: %w", err)
		}
	}
	return nil
}

// NewOpenVSwitch starts Open vSwitch without a bridge. It lasts as long as the test.
func NewOpenVSwitch(tb testing.TB, ns *Namespace) *OpenVSwitch {
	tb.Helper()
	if err := HasOpenVSwitch(); err != nil {
		tb.Fatal(err)
	}
	o := &OpenVSwitch{tb: tb, ns: ns}
	var err error
	if o.Dir, err = os.MkdirTemp("", "ovs"); err != nil { // short: a socket's path has 108 bytes
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(o.Dir) })
	if out, err := exec.Command("ovsdb-tool", "create", o.Path("conf.db"), "/usr/share/openvswitch/vswitch.ovsschema").CombinedOutput(); err != nil {
		tb.Fatalf("ovsdb-tool: %v: %s", err, out)
	}
	Start(tb, ns, o.Env(exec.Command("ovsdb-server", o.Path("conf.db"), "--remote=punix:"+o.Path("db.sock"),
		"--unixctl="+o.Path("ovsdb.ctl"), "-vconsole:warn")))
	o.Vsctl(tb, "--no-wait", "init")
	o.StartSwitches("-vconsole:err")
	return o
}

// Path returns the path of a file of this Open vSwitch.
func (o *OpenVSwitch) Path(name string) string { return filepath.Join(o.Dir, name) }

// Env points a program of Open vSwitch to these files.
func (o *OpenVSwitch) Env(cmd *exec.Cmd) *exec.Cmd {
	for _, v := range []string{"RUNDIR", "LOGDIR", "DBDIR", "SYSCONFDIR"} {
		cmd.Env = append(cmd.Environ(), "OVS_"+v+"="+o.Dir)
	}
	return cmd
}

// StartSwitches starts the process that has all bridges, also after Switches.Kill.
func (o *OpenVSwitch) StartSwitches(args ...string) {
	o.tb.Helper()
	_ = os.Remove(o.Path("vswitchd.ctl"))
	o.Switches = Start(o.tb, o.ns, o.Env(exec.Command("ovs-vswitchd", append([]string{"unix:" + o.Path("db.sock"), "--unixctl=" + o.Path("vswitchd.ctl")}, args...)...)))
}

// Vsctl runs ovs-vsctl, which waits until ovs-vswitchd has done what it says.
func (o *OpenVSwitch) Vsctl(tb testing.TB, args ...string) {
	tb.Helper()
	cmd := o.Env(exec.Command("ovs-vsctl", append([]string{"--retry", "--timeout=60", "--db=unix:" + o.Path("db.sock")}, args...)...))
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("ovs-vsctl %v: %v: %s", args, err, out)
	}
}

// NoChecksumOffload has the kernel make the checksums of what a device of this namespace sends: Open vSwitch in user space passes
// frames on as it reads them.
func NoChecksumOffload(name string) error {
	t, err := nic.Open()
	if err != nil {
		return err
	}
	defer t.Close()
	return t.Change(name, map[string]bool{"tx-checksum-ip-generic": false})
}
