package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"weir/config"
)

// Exec replaces this process with a command in the network namespace of a lab's node, with its standard input and
// output, its signals and its exit code. lab may be empty if there is only one lab. It returns only if it fails.
//
// The command keeps the mounts of the host, so cgroups and bpffs are available (`ip netns exec` hides them). Names
// of the lab's nodes cannot be resolved there: an argument that is the name of a guest is replaced by its address.
// The command is in the lab's cgroup, so that cleaning the lab ends it and its children.
func Exec(lab, node string, argv []string) error {
	if os.Geteuid() != 0 {
		return errors.New("entering a lab needs root: run it with sudo")
	}
	if len(argv) == 0 {
		return errors.New("no command: use 'weir lab exec NODE -- COMMAND'")
	}
	r, err := findLab(lab)
	if err != nil {
		return err
	}
	entry, ok := r.Namespaces[node]
	if !ok {
		return fmt.Errorf("lab %s has no node %q; %s", r.Name, node, config.OneOf(node, r.nodes()))
	}
	program, err := exec.LookPath(argv[0])
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("no program %q on this machine: nodes use the programs of the host; install it, or give its path", argv[0])
	}
	if err != nil {
		return err
	}
	ns, err := os.Open(filepath.Join(netnsDir, entry))
	if err != nil {
		return fmt.Errorf("lab %s is incomplete: run 'weir lab clean %s': %w", r.Name, r.Name, err)
	}
	// Without cgroup2 the command still runs; cleaning then reports it instead of ending it.
	if dir, err := r.makeCgroup(); err == nil {
		if err := moveSelf(filepath.Join(dir, "exec")); err != nil {
			return err
		}
	}
	runtime.LockOSThread() // execve keeps the namespaces of the thread that calls it
	if err := enterNamespace(ns); err != nil {
		return err
	}
	err = syscall.Exec(program, r.withAddresses(argv), slices.Concat(os.Environ(), r.ovsEnvironment(node), r.deadlineEnvironment(node)))
	return fmt.Errorf("run %s: %w", program, err)
}

// ovsEnvironment returns variables for ovs-vsctl and similar programs to use the Open vSwitch of the node, if it
// is one.
func (r *record) ovsEnvironment(node string) []string {
	dir := r.ovsRunDir(node)
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	return ovsEnvironment(dir)
}

// withAddresses returns argv with the names of guests replaced by their addresses.
func (r *record) withAddresses(argv []string) []string {
	out := slices.Clone(argv)
	for i, arg := range out[1:] {
		if addr, ok := r.Addresses[arg]; ok {
			out[i+1] = addr
		}
	}
	return out
}

// noLab returns the error that there is no lab with this name; it lists those that exist.
func noLab(name string, names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("no lab %q; no lab is up: build one with 'weir lab up FILE'", name)
	}
	return fmt.Errorf("no lab %q; labs that are up: %s", name, strings.Join(names, ", "))
}

// findLab returns the record of the lab with this name, or of the only lab.
func findLab(name string) (*record, error) {
	names, _, err := labNames()
	if err != nil {
		return nil, err
	}
	if name == "" {
		switch len(names) {
		case 0:
			return nil, errors.New("no lab is up: build one with 'weir lab up FILE'")
		case 1:
			name = names[0]
		default:
			return nil, fmt.Errorf("%d labs are up: choose one with --lab: %s", len(names), strings.Join(names, ", "))
		}
	}
	if !slices.Contains(names, name) {
		return nil, noLab(name, names)
	}
	r, err := readRecord(name)
	if err != nil {
		return nil, err
	}
	if !r.Built {
		return nil, fmt.Errorf("lab %q is not built yet, or its process was killed while building: wait, or run 'weir lab clean %s'", name, name)
	}
	return r, nil
}
