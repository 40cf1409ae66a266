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
			devices := func() (in, out int) {
				m.Switch.Must(t, func() error {
					links, err := netlink.LinkList()
					for _, l := range links {
						switch a := l.Attrs(); {
						case a.Name == "weir-park0" || a.Name == "weir-repair0":
							in = a.Index
						case a.Name == "weir-park1" || a.Name == "weir-repair1":
							out = a.Index
						}
					}
					return err
				})
				return in, out
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
			first, _ := devices()
			if first == 0 || len(pins()) != 3 {
				t.Fatalf("device %d, pins %v", first, pins())
			}
			other := m.start("weir-confined", strings.Join(leastCapabilities(t), ","), "switch", "out0", "--name", "other")
			if code := other.wait(); code == 0 || !strings.Contains(other.log.String(), `switch "default" (process `) {
				t.Errorf("another switch at the same port: %d, %s", code, other.log)
			}
			c.p.kill()
			c.confinedUp()
			if now, _ := devices(); now != first {
				t.Errorf("started again after a kill: device %d became %d", first, now)
			}
			before := c.p
			c.confinedUp("--take-over")
			if code := before.wait(); code != 0 {
				t.Errorf("taken over: ended with %d", code)
			}
			if now, _ := devices(); now != first {
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
			if now, _ := devices(); now == first || len(pins()) != 3 {
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
