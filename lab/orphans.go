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

// orphansEndSince is the first Linux that closes a connection without a process on request. Earlier kernels only
// discard its send buffer: nothing is retransmitted, no timer expires, and the connection stays for ever.
var orphansEndSince = [2]int{6, 11}

// endOrphans ends the TCP connections of these nodes that no process has any more, and returns the nodes where it
// could not. A connection that was cut while it had data to send keeps its namespace alive until TCP gives up,
// which takes minutes without answers. endOrphans only shortens that time: a failure is not an error of the lab.
func (c *claim) endOrphans(nodes []string) (failed map[string]error) {
	failed = map[string]error{}
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
			failed[n] = fmt.Errorf("end its connections: %w", err)
		}
	}
	return failed
}

// orphansEnd returns an error if this kernel is too old.
func orphansEnd() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	release := unix.ByteSliceToString(u.Release[:])
	var have [2]int
	if _, err := fmt.Sscanf(release, "%d.%d", &have[0], &have[1]); err != nil {
		return fmt.Errorf("kernel release %q: %w", release, err)
	}
	if slices.Compare(have[:], orphansEndSince[:]) < 0 {
		return fmt.Errorf("it needs Linux %d.%d or later, this is %s", orphansEndSince[0], orphansEndSince[1], release)
	}
	return nil
}

// endOrphansHere ends the orphans of the thread's namespace. The lab has no IPv6 of its own. A kernel without
// sock_diag or without CONFIG_INET_DIAG_DESTROY refuses; a kernel that is too old is not tried.
func endOrphansHere() error {
	sockets, err := netlink.SocketDiagTCP(unix.AF_INET)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return err
	}
	for _, s := range sockets {
		if s.INode != 0 || !slices.Contains(orphanStates, s.State) {
			continue
		}
		if err := orphansEnd(); err != nil {
			return err
		}
		err := netlink.SocketDestroy(&net.TCPAddr{IP: s.ID.Source, Port: int(s.ID.SourcePort)},
			&net.TCPAddr{IP: s.ID.Destination, Port: int(s.ID.DestinationPort)})
		if err != nil && !errors.Is(err, unix.ENOENT) { // it ended by itself
			return err
		}
	}
	return nil
}

// orphanStates are the states in which a connection without a process waits for the other end.
var orphanStates = []uint8{netlink.TCP_FIN_WAIT1, netlink.TCP_CLOSING, netlink.TCP_LAST_ACK}
