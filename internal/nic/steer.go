package nic

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// SteerFlows switches receive packet steering (RPS) on at a device of the caller's network namespace, for all processors. A frame that a
// veth sends waits at its far end in a queue of the processor that sent it. Two frames that leave a qdisc can be sent by two processors
// within microseconds, and so be exchanged. With RPS the kernel chooses the processor by the flow, so a flow's frames stay in order. The
// error is fs.ErrNotExist if the kernel has no RPS (CONFIG_RPS).
func SteerFlows(device string, ifindex int) error {
	sysfs, err := sysfsWith(device, ifindex)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(sysfs) }()
	online, err := readAt(sysfs, "devices/system/cpu/online")
	if err != nil {
		return err
	}
	mask, err := cpuMask(online)
	if err != nil {
		return err
	}
	// A device with one receive queue, as a veth has.
	if err := writeAt(sysfs, rpsOf(device), mask); err != nil {
		return fmt.Errorf("steer flows of %s: %w", device, err)
	}
	return nil
}

// SteersFlows reports whether RPS is on at a device of the caller's network namespace. The errors are those of SteerFlows.
func SteersFlows(device string, ifindex int) (bool, error) {
	sysfs, err := sysfsWith(device, ifindex)
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(sysfs) }()
	mask, err := readAt(sysfs, rpsOf(device))
	return strings.Trim(mask, "0,") != "", err
}

func rpsOf(device string) string { return "class/net/" + device + "/queues/rx-0/rps_cpus" }

// sysfsWith opens a sysfs that shows a device of the caller's network namespace. Without CAP_SYS_ADMIN that can only be /sys.
func sysfsWith(device string, ifindex int) (int, error) {
	own, err := openSysfs()
	if err == nil {
		return own, nil
	}
	plain, err2 := unix.Open("/sys", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err2 != nil {
		return -1, errors.Join(err, &os.PathError{Op: "open", Path: "/sys", Err: err2})
	}
	if index, err := readAt(plain, "class/net/"+device+"/ifindex"); err == nil && index == strconv.Itoa(ifindex) {
		return plain, nil
	}
	_ = unix.Close(plain)
	return -1, fmt.Errorf("%w, and /sys does not show %s of this network namespace", err, device)
}

// openSysfs mounts the sysfs of the caller's network namespace without a place in the file system: sysfs shows the devices of the namespace
// that it was mounted in.
func openSysfs() (int, error) {
	fs, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open sysfs: %w", err)
	}
	defer func() { _ = unix.Close(fs) }()
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("open sysfs: %w", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("mount sysfs: %w", err)
	}
	return mount, nil
}

func readAt(dir int, path string) (string, error) {
	fd, err := unix.Openat(dir, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	b := make([]byte, 4096)
	n, err := unix.Read(fd, b)
	if err != nil {
		return "", &os.PathError{Op: "read", Path: path, Err: err}
	}
	return strings.TrimSpace(string(b[:n])), nil
}

func writeAt(dir int, path, text string) error {
	fd, err := unix.Openat(dir, path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

const cpusMax = 8192 // the most that Linux has

// cpuMask converts the kernel's list of processors ("0-3,8") to its mask: words of 32 bits in hexadecimal, the highest
// first ("10f").
func cpuMask(list string) (string, error) {
	words := []uint32{0}
	for _, part := range strings.Split(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, err := strconv.ParseUint(low, 10, 32)
		to, err2 := strconv.ParseUint(high, 10, 32)
		if err := errors.Join(err, err2); err != nil || to < from || to >= cpusMax {
			return "", fmt.Errorf("list of processors %q: not understood", list)
		}
		for ; from <= to; from++ {
			for uint64(len(words)) <= from/32 {
				words = append(words, 0)
			}
			words[from/32] |= 1 << (from % 32)
		}
	}
	var b strings.Builder
	for i := len(words) - 1; i >= 0; i-- {
		if b.Len() == 0 {
			fmt.Fprintf(&b, "%x", words[i])
		} else {
			fmt.Fprintf(&b, ",%08x", words[i])
		}
	}
	return b.String(), nil
}
