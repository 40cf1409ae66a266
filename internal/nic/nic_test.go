package nic_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/testnet"
	"weir/internal/nic"
)

// within runs f in the switch's namespace of a test path, with the name of a veth there.
func within(t *testing.T, f func(tool *nic.Tool, device string) error) {
	t.Helper()
	p := testnet.NewPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	p.Switch.Must(t, func() error {
		link, err := netlink.LinkByIndex(p.Port.Ifindex)
		if err != nil {
			return err
		}
		tool, err := nic.Open()
		if err != nil {
			return err
		}
		defer tool.Close()
		return f(tool, link.Attrs().Name)
	})
}

// Every offload that can be changed takes the wanted state. Other offloads change only if they depend on it, as a second
// reading of all shows.
func TestFeatures_Change(t *testing.T) {
	within(t, func(tool *nic.Tool, device string) error {
		before, err := tool.Features(device)
		if err != nil {
			return err
		}
		if f := before["tx-tcp-segmentation"]; !f.On || f.Fixed {
			t.Errorf("TSO of a veth: %+v", f)
		}
		if f, known := before["esp-hw-offload"]; !known || !f.Fixed || f.On {
			t.Errorf("an offload that a veth lacks: %+v, known %t", f, known)
		}
		for _, name := range []string{"tx-tcp-segmentation", "tx-generic-segmentation", "rx-gro", "rx-gro-list"} {
			for _, on := range []bool{!before[name].On, before[name].On} {
				if err := tool.Change(device, map[string]bool{name: on}); err != nil {
					t.Error(err)
				}
				now, err := tool.On(device, name, "no-such-offload")
				if err != nil {
					return err
				}
				if got, there := now[name]; !there || got != on || len(now) != 1 {
					t.Errorf("%s was set to %t: %v", name, on, now)
				}
			}
		}
		after, err := tool.Features(device)
		if err != nil {
			return err
		}
		for name := range before {
			if before[name] != after[name] {
				t.Errorf("%s: %+v before, %+v after", name, before[name], after[name])
			}
		}
		return nil
	})
}

func TestChange_Refuses(t *testing.T) {
	within(t, func(tool *nic.Tool, device string) error {
		for _, tt := range []struct {
			device string
			want   map[string]bool
			err    error
			says   string
		}{
			{"no-such-device", map[string]bool{"rx-gro": false}, unix.ENODEV, "no-such-device"},
			{strings.Repeat("x", 40), map[string]bool{"rx-gro": false}, unix.ENODEV, "xxx"},
			{device, map[string]bool{"rx-grow": true}, unix.EOPNOTSUPP, `"rx-grow"`},
			{device, map[string]bool{"esp-hw-offload": true}, unix.EOPNOTSUPP, "did not change esp-hw-offload"},
		} {
			err := tool.Change(tt.device, tt.want)
			if !errors.Is(err, tt.err) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Change(%s, %v) = %v", tt.device, tt.want, err)
			}
		}
		return tool.Change(device, nil)
	})
}

// The values agree with /sys, and with a link that goes down.
func TestDevice(t *testing.T) {
	within(t, func(tool *nic.Tool, device string) error {
		if driver, _, err := tool.Driver(device); err != nil || driver != "veth" {
			t.Errorf("driver %q, %v", driver, err)
		}
		if up, err := tool.Link(device); err != nil || !up {
			t.Errorf("link up %t, %v", up, err)
		}
		if tx, rx, err := tool.Channels(device); err != nil || tx < 1 || rx < 1 {
			t.Errorf("channels %d and %d, %v", tx, rx, err)
		}
		if mbit, err := tool.SpeedMbit(device); err != nil || mbit != 10000 { // the driver's made-up figure
			t.Errorf("speed %d, %v", mbit, err)
		}
		if mbit, err := tool.SpeedMbit("lo"); !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("speed of lo %d, %v", mbit, err)
		}
		return nil
	})
}

// A call from a goroutine whose stack grows during the call returns the right answer. New goroutines have small stacks, and
// each of these uses another part of its own. With the library safchain/ethtool v0.7.0, 12 of the same 4000 calls returned
// the old value of its variable.
func TestLink_StackGrows(t *testing.T) {
	within(t, func(tool *nic.Tool, device string) error { // its socket stays in this namespace
		for depth := range 4000 {
			var wg sync.WaitGroup
			wg.Go(func() {
				nested(depth, func() {
					if up, err := tool.Link(device); err != nil || !up {
						t.Errorf("at depth %d: up %t, %v", depth, up, err)
					}
				})
			})
			wg.Wait()
		}
		return nil
	})
}

// nested calls f with n more frames on the stack.
//
//go:noinline
func nested(n int, f func()) int {
	if n == 0 {
		f()
		return 0
	}
	return nested(n-1, f) + 1
}
