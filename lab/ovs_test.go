package lab

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"weir/datapath/testnet"
	"weir/internal/testroot"
)

// onOVS makes the switches of a network Open vSwitches. If the lab refuses those, the test is skipped with the
// lab's reason.
func onOVS(t testing.TB, g *graphBuilder) *graphBuilder {
	t.Helper()
	testroot.Need(t, "makes network namespaces")
	g.kind = "ovs"
	if err := newOVS(&plan{}, netip.AddrPort{}, 1).check(&plan{}); err != nil {
		t.Skip("the lab has no Open vSwitch here: ", err)
	}
	return g
}

func TestOVS_GuestsReachEachOther(t *testing.T) {
	for name, g := range map[string]*graphBuilder{"racks": racks(2, 2, true), "chain": chain(3, false)} {
		t.Run(name, func(t *testing.T) {
			l := up(t, name, onOVS(t, g).config())
			for name, sent := range sentByPort(t, l) {
				if sent != 0 {
					t.Errorf("%s sent %d bytes while the lab was built", name, sent)
				}
			}
			guests := l.plan.guests()
			for i, from := range guests {
				for _, to := range guests[i+1:] {
					if err := talk(l, from.name, to.name, 0); err != nil {
						t.Error(err)
					}
				}
			}
			if lines := append(l.Unmet(), l.troubleOfSwitches()...); len(lines) > 0 {
				t.Errorf("unmet: %v", lines)
			}
		})
	}
}

// Its two daemons end with the lab; those of a lab without an owner end with Clean. `weir lab exec` directs the
// tools of Open vSwitch to them.
func TestOVS_DaemonsEndWithTheLab(t *testing.T) {
	g := onOVS(t, dumbbell(1, false))
	before := hostState(t)
	kept, err := Up(t.Context(), testName("ovskept"), g.config(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.Leave(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = Clean(kept.Name()) })
	if n := strings.Count(hostState(t), "process "); n != 2 {
		t.Errorf("%d processes of a lab with one switch, want 2", n)
	}
	out, err := child(t, "exec", kept.Name(), "switch", "ovs-vsctl", "list-ports", bridgeName).CombinedOutput()
	if err != nil || string(out) != "p1\np2\n" {
		t.Errorf("ovs-vsctl in the lab: %q, %v", out, err)
	}
	if _, err := Clean(kept.Name()); err != nil {
		t.Error(err)
	}
	sameHost(t, before, "after Clean")
}

// kill -9 while daemons start, and when they run, then Clean: the host is as before.
func TestOVS_CleanAfterKill(t *testing.T) {
	onOVS(t, dumbbell(1, false))
	t.Setenv("WEIR_TEST_SWITCH", "ovs")
	before := hostState(t)
	name, killed := testName("ovskill"), 0
	for i, after := range []time.Duration{60, 150, 250, 400, 0} {
		whole := after == 0
		if killChild(t, name, after*time.Millisecond, whole) {
			killed++
		}
		if during := strings.Count(hostState(t), "process "); whole && during != 6 {
			t.Errorf("%d processes of a lab with three switches were left, want 6", during)
		}
		if _, err := clean(nil, ofThisTest); err != nil {
			t.Errorf("kill %d: clean: %v", i, err)
		}
		sameHost(t, before, "killed and cleaned,")
	}
	if killed == 0 {
		t.Error("none was killed before it was whole")
	}
}

// A daemon that has ended is reported in the run, with the end of its log.
func TestOVS_NamesADaemonThatEnded(t *testing.T) {
	l := up(t, "ovsgone", onOVS(t, dumbbell(1, false)).config())
	d, err := l.ovsDaemons(l.plan.byName["switch"])
	if err != nil {
		t.Fatal(err)
	}
	if err := d.endForwarder(); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(l.troubleOfSwitches(), "\n")
	if !strings.HasPrefix(got, `topology.switch ovs on switch: ovs-vswitchd has ended; its log ends with "2`) || strings.Contains(got, "\n") {
		t.Errorf("trouble: %q", got)
	}
}

func TestOVS_Refuses(t *testing.T) {
	g := onOVS(t, leafSpine(2, 1, false))
	_, err := Up(t.Context(), testName("ovsr"), g.config(), Options{})
	if err == nil || !strings.Contains(err.Error(), "several paths, so an Open vSwitch needs a controller") {
		t.Errorf("a network with several paths: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	err = newOVS(&plan{}, netip.AddrPort{}, 1).check(&plan{})
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "apt-get install openvswitch-switch") {
		t.Errorf("without Open vSwitch: %v", err)
	}
}

// A start that fails reports the program's error message, and leaves nothing.
func TestOVS_StartThatFails(t *testing.T) {
	g := onOVS(t, dumbbell(1, false))
	before := hostState(t)
	real, err := exec.LookPath(forwarder)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\n" + real + " \"$@\" --no-such-option\n"
	if err := os.WriteFile(dir+"/"+forwarder, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	_, err = Up(t.Context(), testName("ovsfail"), g.config(), Options{Owned: true})
	if err == nil || !strings.Contains(err.Error(), "option '--no-such-option'") {
		t.Errorf("a start that failed: %v", err)
	}
	sameHost(t, before, "after a start that failed")
}

// askOVS returns the output of a command of ovs-appctl.
func askOVS(t testing.TB, l *Lab, node, command string, args ...string) string {
	t.Helper()
	d, err := l.ovsDaemons(l.plan.byName[node])
	if err != nil {
		t.Fatal(err)
	}
	control, err := d.dial(forwarder)
	if err != nil {
		t.Fatal(err)
	}
	defer control.close()
	text, err := control.call(command, args...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// FairQ on its ports: the advertised window arrives at the sender's socket, and is on the line before it.
func TestOVS_SenderSeesTheWindow(t *testing.T) {
	const grant = 2 << 14
	l := up(t, "ovswindow", onOVS(t, chain(2, false)).config())
	guest := testnet.NewTap(t, portOf(t, l, "sender1->switch1"))
	f, err := l.limitWindows("switch1", grant)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = dial(l, "sender1", "receiver2", 0, func(client, server *net.TCPConn) error {
		if err := limitedTo(t, guest, client, server, grant, 10); err != nil {
			return err
		}
		testnet.Until(t, "the sender's socket has the window", func() bool {
			if err := send(client, server, 3000); err != nil {
				t.Fatal(err)
			}
			return testnet.ReadTCPInfo(t, client).Snd_wnd == grant
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
