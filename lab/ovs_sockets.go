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
	// ovsSendBytes is how much memory frames on their way out may take, which the kernel doubles. It is not
	// to be what limits: that are the queues, and a short frame takes twelve times its length.
	ovsSendBytes = 512 << 20
	// ovsReceiveBytes is what may wait at one port until ovs-vswitchd gets a processor: 200 Mbit/s for a
	// tenth of a second, in frames that take twice their length.
	ovsReceiveBytes = 4 << 20
)

// widenSockets: trap 2. ovs-vswitchd in user space sends to all ports by one packet socket. What waits in any
// port's queue counts against it, and with the usual 208 KB a full queue at one port makes frames to idle ones
// disappear, and no queue longer than that can be seen. The sockets are ovs-vswitchd's: they are borrowed.
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
		return fmt.Errorf("give %s's sockets more room: %w", forwarder, err)
	}
	return nil
}

// eachPacketSocket borrows the packet sockets of ovs-vswitchd one by one: for each port one that receives, and
// one that sends.
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
			return fmt.Errorf("borrow descriptor %d of process %d (Linux 5.6, CAP_SYS_PTRACE): %w", theirs, pid, err)
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

// unread counts the frames that came in and that ovs-vswitchd was too slow to read. The kernel forgets them then.
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
