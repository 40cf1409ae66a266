package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// ovsSendBytes is the memory for outgoing frames, which the kernel doubles. It must not be the limit: the
	// queues are, and a short frame takes twelve times its length.
	ovsSendBytes = 512 << 20
	// ovsReceiveBytes is the memory for frames of one port that wait for ovs-vswitchd to get a processor: 200
	// Mbit/s for a tenth of a second, in frames that take twice their length.
	ovsReceiveBytes = 4 << 20
)

// widenSockets: trap 2. ovs-vswitchd in user space sends to all ports with one packet socket, and the frames in
// all ports' queues count towards its buffer. With the usual 208 KB, a full queue at one port makes frames to idle
// ports disappear, and no queue can be longer. The sockets are ovs-vswitchd's: they are borrowed.
func (d *ovsDaemons) widenSockets(n *node) error {
	if err := d.createSendSocket(n); err != nil {
		return err
	}
	err := d.eachPacketSocket(func(fd int, _ bool) error {
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, ovsSendBytes),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, ovsReceiveBytes),
		)
	})
	if err != nil {
		return fmt.Errorf("enlarge the socket buffers of %s: %w", forwarder, err)
	}
	return nil
}

// eachPacketSocket borrows the packet sockets of ovs-vswitchd one by one: for each port one that receives, and one
// that sends for all.
func (d *ovsDaemons) eachPacketSocket(f func(fd int, sends bool) error) error {
	pid, err := d.pid(forwarder)
	if err != nil {
		return err
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer unix.Close(process)
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		theirs, err := strconv.Atoi(e.Name())
		if err != nil {
			return err
		}
		fd, err := unix.PidfdGetfd(process, theirs, 0)
		if errors.Is(err, unix.EBADF) {
			continue // closed since
		}
		if err != nil {
			return fmt.Errorf("borrow descriptor %d of process %d (needs Linux 5.6 and CAP_SYS_PTRACE): %w", theirs, pid, err)
		}
		if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil && domain == unix.AF_PACKET {
			protocol, e := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
			err = errors.Join(e, f(fd, protocol == 0))
			if err != nil {
				return errors.Join(err, unix.Close(fd))
			}
		}
		if err := unix.Close(fd); err != nil {
			return err
		}
	}
	return nil
}

// unread returns how many frames arrived that ovs-vswitchd was too slow to read. Reading resets the kernel's
// counter.
func (d *ovsDaemons) unread() (frames uint64, err error) {
	err = d.eachPacketSocket(func(fd int, sends bool) error {
		if sends {
			return nil
		}
		stats, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err != nil {
			return err
		}
		frames += uint64(stats.Drops)
		return nil
	})
	return frames, err
}
