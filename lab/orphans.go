package lab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// endOrphans ends the TCP connections of these nodes that no process has any more. One that was cut while it had
// data to send keeps its namespace alive until TCP gives up, which takes minutes when nobody answers. A kernel that
// cannot end them (before 6.11, or without CONFIG_INET_DIAG_DESTROY) takes its time, and it is no fault.
func (c *claim) endOrphans(nodes []string) error {
	var errs []error
	for _, n := range nodes {
		path := filepath.Join(netnsDir, c.Namespaces[n])
		if !isNamespace(path) {
			continue
		}
		ours, err := carriesToken(path, c.Token)
		if ours {
			err = inNamespace(path, endOrphansHere)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) { // another process was faster
			errs = append(errs, fmt.Errorf("end connections in %s: %w", n, err))
		}
	}
	return errors.Join(errs...)
}

// endOrphansHere ends those of the thread's namespace. The lab has no IPv6 of its own.
func endOrphansHere() error {
	sockets, err := netlink.SocketDiagTCP(unix.AF_INET)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		if errors.Is(err, unix.ENOENT) { // the kernel has no sock_diag
			return nil
		}
		return err
	}
	for _, s := range sockets {
		if s.INode != 0 || !slices.Contains(orphanStates, s.State) {
			continue
		}
		err := netlink.SocketDestroy(&net.TCPAddr{IP: s.ID.Source, Port: int(s.ID.SourcePort)},
			&net.TCPAddr{IP: s.ID.Destination, Port: int(s.ID.DestinationPort)})
		switch {
		case errors.Is(err, unix.EOPNOTSUPP):
			return nil
		case err != nil && !errors.Is(err, unix.ENOENT): // it ended by itself
			return err
		}
	}
	return nil
}

// orphanStates are those in which a connection without a process waits for the other end.
var orphanStates = []uint8{netlink.TCP_FIN_WAIT1, netlink.TCP_CLOSING, netlink.TCP_LAST_ACK}
