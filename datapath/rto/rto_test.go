package rto_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/datapath/rto"
	"weir/datapath/testnet"
)

// cgroup makes a cgroup (version 2) and moves this process into it for the length of the test.
func cgroup(t *testing.T) string {
	t.Helper()
	mount := testnet.Mount(t, "cgroup2")
	procs := func(dir string) string { return filepath.Join(dir, "cgroup.procs") }
	home := mount
	if b, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		var path string
		if _, err := fmt.Sscanf(string(b[max(0, len(b)-512):]), "0::%s", &path); err == nil {
			home = filepath.Join(mount, path)
		}
	}
	dir := filepath.Join(mount, fmt.Sprintf("weirtest-datapath-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	self := []byte("0")
	if err := os.WriteFile(procs(dir), self, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(procs(home), self, 0o644); err != nil {
			t.Error(err)
		}
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// synRTO connects to an address that does not answer and returns the timer of the SYN.
func synRTO(t *testing.T, ns *testnet.Namespace) (timeout time.Duration) {
	t.Helper()
	ns.Must(t, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		to := &unix.SockaddrInet4{Port: 9, Addr: [4]byte{10, 0, 0, 99}}
		if err := unix.Connect(fd, to); err != unix.EINPROGRESS {
			return fmt.Errorf("connect: %w", err)
		}
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return err
		}
		timeout = time.Duration(info.Rto) * time.Microsecond
		return nil
	})
	return timeout
}

// The initial RTO is the one given for the namespace, rounded up to a jiffy. Other namespaces, and all after
// Close, have the kernel's second.
func TestInitialRTO(t *testing.T) {
	dir := cgroup(t)
	p := testnet.NewPath(t, testnet.PathOptions{})
	byCookie := map[uint64]time.Duration{p.Sender.Cookie: 63 * time.Millisecond}
	a, err := rto.AttachInitial(dir, byCookie)
	if err != nil {
		t.Fatal(err)
	}
	// A jiffy is 10 ms at most (HZ 100).
	if timeout := synRTO(t, p.Sender); timeout < 63*time.Millisecond || timeout > 73*time.Millisecond {
		t.Errorf("initial RTO %s, want 63 ms", timeout)
	}
	if timeout := synRTO(t, p.Receiver); timeout != time.Second {
		t.Errorf("initial RTO of another namespace %s, want 1 s", timeout)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if timeout := synRTO(t, p.Sender); timeout != time.Second {
		t.Errorf("initial RTO after Close %s, want 1 s", timeout)
	}
	if _, err := rto.AttachInitial(dir, map[uint64]time.Duration{1: 0}); err == nil {
		t.Error("an initial RTO of 0 was accepted")
	}
	if _, err := rto.AttachInitial(filepath.Join(dir, "none"), byCookie); err == nil {
		t.Error("a cgroup that does not exist was accepted")
	}
}
