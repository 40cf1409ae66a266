package controller

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/datapath/testnet"
	"weir/internal/localsock"
	"weir/internal/testroot"
)

// A program that takes the abstract name of the control socket of earlier versions keeps the controller neither from
// starting nor from answering. A second controller of the same name is refused, and says why. A killed one's socket is
// taken over.
func TestControlSocket(t *testing.T) {
	testroot.Need(t, "namespaces")
	r := &racks{tb: t, fabric: testnet.NewNamespace(t), OpenVSwitch: &testnet.OpenVSwitch{Dir: t.TempDir()}}
	t.Cleanup(localsock.Tidy) // after the controllers were killed
	r.fabric.Must(t, r.makeCables)
	r.fabric.Must(t, func() error { return takeAbstractName(t, "@weir/controller/test") })
	active := func(what string) {
		t.Helper()
		testnet.Until(t, what, func() bool { s := r.status(t); return s != nil && s.Active == "" })
	}
	r.startController()
	active("the controller answers")
	q := PinRequest{Proto: protoTCP, Src: "10.0.0.1:40000", Dst: "10.0.0.2:80", IdleSeconds: 60}
	if err := Pin(t.Context(), "test", r.fabric.Enter, q); err == nil || !strings.Contains(err.Error(), "no host is known with 10.0.0.1") {
		t.Errorf("a flow between hosts that nobody knows is pinned: %v", err)
	}
	first := r.controller
	second := r.start("test", "127.0.0.1:6654", "")
	<-second.Done
	if code, said := second.Cmd.ProcessState.ExitCode(), second.Log.String(); code == 0 || !strings.Contains(said, "a controller named test runs in this network namespace") {
		t.Errorf("a second one ends with %d: %s", code, said)
	}
	first.Kill()
	r.startController()
	active("the next one answers after a kill")
}

// takeAbstractName listens on an abstract socket as another user, in the namespace of the calling thread. The kernel
// notes at listen(2) who it is.
func takeAbstractName(tb testing.TB, name string) error {
	const nobody = 65534
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	tb.Cleanup(func() { _ = unix.Close(fd) })
	become := func(uid int) { // of this thread alone
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			err = errno
		}
	}
	become(nobody)
	defer become(0)
	return errors.Join(err, unix.Bind(fd, &unix.SockaddrUnix{Name: name}), unix.Listen(fd, 8))
}
