package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// needRights returns an error if the process may not load kernel programs: before anything is changed, and with a
// clearer message than a system call.
func needRights(command string) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return fmt.Errorf("capabilities of this process: %w", err)
	}
	has := func(c uint) bool { return data[c/32].Effective&(1<<(c%32)) != 0 }
	all := has(unix.CAP_SYS_ADMIN)
	if has(unix.CAP_NET_ADMIN) && (all || has(unix.CAP_BPF) && has(unix.CAP_PERFMON)) {
		return nil
	}
	return fmt.Errorf("%s needs root: run it with sudo, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON", command)
}
