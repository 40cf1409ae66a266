package peer

import (
	"net"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"weir/internal/testroot"
)

// Root and the same user are accepted; another user is not.
func TestCheck(t *testing.T) {
	testroot.Need(t, "becomes another user")
	const nobody = 65534
	for uid, refused := range map[int]bool{0: false, nobody: true} {
		c, err := madeBy(t, uid)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(c); (err != nil) != refused {
			t.Errorf("user %d: %v", uid, err)
		}
	}
}

// madeBy returns one end of a pair of sockets that another user made, so that this user is the peer. The thread that became the
// user is never unlocked, so it ends with its goroutine.
func madeBy(t *testing.T, uid int) (*net.UnixConn, error) {
	t.Helper()
	var pair [2]int
	made := make(chan error)
	go func() {
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			made <- errno
			return
		}
		var err error
		pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		made <- err
	}()
	if err := <-made; err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = unix.Close(pair[1]) })
	f := os.NewFile(uintptr(pair[0]), "pair")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.UnixConn), nil
}
