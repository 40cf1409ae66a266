package testnet

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"weir/internal/testroot"
)

// Mount mounts a kernel file system ("bpf", "cgroup2") that only the calling test sees, and returns its path.
// The test's goroutine stays on its thread, which ends with it and removes the mount, even if the process is
// killed.
func Mount(tb testing.TB, kind string) string {
	tb.Helper()
	testroot.Need(tb, "mounts a file system")
	dir := tb.TempDir()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		tb.Fatalf("new mount namespace: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		tb.Fatalf("keep mounts private: %v", err)
	}
	if err := unix.Mount(kind, dir, kind, 0, ""); err != nil {
		tb.Fatalf("mount %s: %v", kind, err)
	}
	tb.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}
