// Package peer checks the user at the other end of a local socket.
package peer

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Check returns an error unless the other end of a connection runs as root or as the same user. Both ends must call it.
func Check(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var who *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { who, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, credErr); err != nil {
		return fmt.Errorf("read the user at the other end: %w", err)
	}
	if who.Uid != 0 && int(who.Uid) != os.Geteuid() {
		return fmt.Errorf("the other end runs as user %d: only root and user %d are allowed", who.Uid, os.Geteuid())
	}
	return nil
}
