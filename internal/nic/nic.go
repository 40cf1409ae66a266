// Package nic asks the kernel's ethtool about network devices: driver, offloads, link, channels, speed.
//
// It calls the kernel itself, so that an address stays a pointer until the system call. If a library passes the address as a
// number, the kernel writes to the old place of a variable after the stack has grown (TestLink_StackGrows).
package nic

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Tool reads devices of the network namespace in which it was opened. Only one goroutine may use it at a time.
type Tool struct {
	fd     int
	bits   map[string]int // the kernel's names of the offloads, which are the same for all devices; nil: not read yet
	blocks uint32         // number of blocks of 32 offloads; the kernel accepts a change only with this number
}

// Open opens a Tool in the caller's network namespace.
func Open() (*Tool, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket for ethtool: %w", err)
	}
	return &Tool{fd: fd}, nil
}

// Close closes the Tool.
func (t *Tool) Close() { _ = unix.Close(t.fd) }

// request is the kernel's struct ifreq with a pointer.
type request struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

// call runs an ethtool command. data points at its struct, whose first field is the command's number.
func (t *Tool) call(device string, data unsafe.Pointer) error {
	if device == "" || len(device) >= unix.IFNAMSIZ {
		return unix.ENODEV
	}
	req := request{data: data}
	copy(req.name[:], device)
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(t.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// Driver returns the name of a device's driver and its address on the bus.
func (t *Tool) Driver(device string) (driver, bus string, err error) {
	info, err := unix.IoctlGetEthtoolDrvinfo(t.fd, device)
	if err != nil {
		return "", "", fmt.Errorf("driver of %s: %w", device, err)
	}
	return unix.ByteSliceToString(info.Driver[:]), unix.ByteSliceToString(info.Bus_info[:]), nil
}

// Link reports whether a device's link is up. It also makes the kernel update a delayed link state: a link that came up can send
// from then on.
func (t *Tool) Link(device string) (up bool, err error) {
	value := struct{ command, data uint32 }{command: unix.ETHTOOL_GLINK}
	if err := t.call(device, unsafe.Pointer(&value)); err != nil {
		return false, fmt.Errorf("link of %s: %w", device, err)
	}
	return value.data != 0, nil
}

// Channels returns the numbers of a device's send and receive queues. Combined queues count in both.
func (t *Tool) Channels(device string) (tx, rx int, err error) {
	c := struct {
		command, maxRx, maxTx, maxOther, maxCombined, rx, tx, other, combined uint32
	}{command: unix.ETHTOOL_GCHANNELS}
	if err := t.call(device, unsafe.Pointer(&c)); err != nil {
		return 0, 0, fmt.Errorf("channels of %s: %w", device, err)
	}
	return int(c.tx + c.combined), int(c.rx + c.combined), nil
}

// SpeedMbit returns a device's speed in Mbit/s; 0: the driver does not know it.
func (t *Tool) SpeedMbit(device string) (int, error) {
	s := struct {
		command, supported, advertising uint32
		speed                           uint16
		duplex, port, phy, transceiver  uint8
		autoneg, mdio                   uint8
		maxTx, maxRx                    uint32
		speedHigh                       uint16
		mdix, mdixControl               uint8
		partner                         uint32
		_                               [2]uint32
	}{command: unix.ETHTOOL_GSET}
	if err := t.call(device, unsafe.Pointer(&s)); err != nil {
		return 0, fmt.Errorf("speed of %s: %w", device, err)
	}
	speed := uint32(s.speedHigh)<<16 | uint32(s.speed)
	if speed == 1<<32-1 || speed == 1<<16-1 {
		return 0, nil
	}
	return int(speed), nil
}
