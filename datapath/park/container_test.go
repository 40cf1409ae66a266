package park_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/datapath/park"
	"weir/datapath/testnet"
)

// In a container /proc/sys can be read-only. The parking opens, and its devices get no IPv6 addresses.
func TestPark_ReadOnlySysctls(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{})
	p.Switch.Must(t, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		for _, m := range []struct {
			from, at string
			flags    uintptr
		}{
			{"", "/", unix.MS_REC | unix.MS_PRIVATE},
			{"/proc/sys", "/proc/sys", unix.MS_BIND},
			{"", "/proc/sys", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY},
		} {
			if err := unix.Mount(m.from, m.at, "", m.flags, ""); err != nil {
				return err
			}
		}
		return nil
	})
	openPark(t, p, park.Options{})
	p.Switch.Must(t, func() error {
		for _, device := range []string{"weir-park0", "weir-park1"} {
			mode, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + device + "/addr_gen_mode")
			if err != nil {
				return err
			}
			if text := strings.TrimSpace(string(mode)); text != "1" {
				t.Errorf("%s: addr_gen_mode is %s", device, text)
			}
		}
		return nil
	})
}

// Another process sees whether the parking steers flows.
func TestPark_LookSeesRPS(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{NoIPv6: true})
	openPark(t, p, park.Options{})
	steers := func() bool {
		t.Helper()
		s, exists, err := park.Look(p.Switch.Enter, park.Options{Owner: owner})
		if err != nil || !exists {
			t.Fatal(exists, err)
		}
		return s.FlowPerCPU
	}
	if !steers() {
		t.Error("a new parking does not steer flows")
	}
	p.Switch.Must(t, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
			return err
		}
		return os.WriteFile("/sys/class/net/weir-park1/queues/rx-0/rps_cpus", []byte("0"), 0o644)
	})
	if steers() {
		t.Error("RPS is off, and the parking seems to steer flows")
	}
}
