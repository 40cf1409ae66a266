package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ownSysfs mounts the sysfs of the switch's namespace, which shows its devices, as on a machine.
func (m *machine) ownSysfs() {
	m.t.Helper()
	m.Switch.Must(m.t, func() error {
		if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
			return err
		}
		return unix.Mount("bpf", bpffs, "bpf", 0, "")
	})
}

// confinedUp starts `weir switch` with the capabilities of the unit, and waits until its health check succeeds.
func (c *configured) confinedUp(args ...string) {
	c.t.Helper()
	c.p = c.start("weir-confined", append([]string{strings.Join(leastCapabilities(c.t), ","), "switch", "-f", c.path}, args...)...)
	at := c.servedAt(c.p)
	says := ""
	c.until(c.p, "the switch begins", func() bool { return strings.Contains(c.p.log.String(), "begun") })
	c.until(c.p, "it is healthy", func() bool {
		code, body := c.get(at, "/healthz")
		if code != 200 && body != says {
			says = body
			c.t.Logf("/healthz: %d, %s", code, body)
		}
		return code == 200
	})
}

// A switch whose packets wait in a parking needs no more capabilities than those of the unit: it starts, continues after a kill and a
// take-over with the same parking, and ends. Without its pins, which other versions do not have, the parking is made again.
func TestSwitch_LeastCapabilitiesParking(t *testing.T) {
	for law, keys := range map[string]string{
		"credits":    "ports: [{match: [out0, in0]}]\nfairq: {credits: on}\n",
		"lossrepair": "ports: [{match: [out0, in0], lossrepair: {park: 100KB}}]\n",
	} {
		t.Run(law, func(t *testing.T) {
			parallel(t)
			m := newMachine(t)
			m.ownSysfs()
			m.loopback()
			chains := m.chains()
			c := &configured{machine: m, path: filepath.Join(t.TempDir(), "switch.yaml")}
			c.write("kind: Switch\nversion: 2\nmetrics: {listen: \"127.0.0.1:0\"}\n" + keys)
			device := func() (ifindex int) {
				m.Switch.Must(t, func() error {
					links, err := netlink.LinkList()
					for _, l := range links {
						if a := l.Attrs(); a.Name == "weir-park0" || a.Name == "weir-repair0" {
							ifindex = a.Index
						}
					}
					return err
				})
				return ifindex
			}
			pins := func() (paths []string) {
				for _, pin := range m.pins() {
					if strings.HasPrefix(filepath.Base(pin), "park") {
						paths = append(paths, pin)
					}
				}
				return paths
			}

			c.confinedUp()
			first := device()
			if first == 0 || len(pins()) != 3 {
				t.Fatalf("device %d, pins %v", first, pins())
			}
			m.Switch.Must(t, func() error {
				for _, device := range []string{"weir-park1", "weir-repair1"} {
					cpus, err := os.ReadFile("/sys/class/net/" + device + "/queues/rx-0/rps_cpus")
					if err == nil && strings.Trim(strings.TrimSpace(string(cpus)), "0,") == "" {
						t.Errorf("%s does not steer flows", device)
					}
				}
				return nil
			})
			other := m.start("weir-confined", strings.Join(leastCapabilities(t), ","), "switch", "out0", "--name", "other")
			if code := other.wait(); code == 0 || !strings.Contains(other.log.String(), `switch "default" (process `) {
				t.Errorf("another switch at the same port: %d, %s", code, other.log)
			}
			c.p.kill()
			c.confinedUp()
			if now := device(); now != first {
				t.Errorf("started again after a kill: device %d became %d", first, now)
			}
			before := c.p
			c.confinedUp("--take-over")
			if code := before.wait(); code != 0 {
				t.Errorf("taken over: ended with %d", code)
			}
			if now := device(); now != first {
				t.Errorf("taken over: device %d became %d", first, now)
			}

			c.p.kill()
			left := pins()
			m.Switch.Must(t, func() error {
				for _, pin := range left {
					if err := os.Remove(pin); err != nil {
						return err
					}
				}
				return nil
			})
			c.confinedUp()
			if now := device(); now == first || len(pins()) != 3 {
				t.Errorf("without its pins: device %d became %d, pins %v", first, now, pins())
			}
			c.p.signal(syscall.SIGTERM)
			if code := c.p.wait(); code != 0 || len(pins()) != 0 {
				t.Errorf("ended with %d, pins %v", code, pins())
			}
			if now := m.chains(); difference(chains, now) != "" {
				t.Errorf("left something:\n%s", difference(chains, now))
			}
		})
	}
}
