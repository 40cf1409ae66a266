package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The lab's cgroup allows a program to set TCP options of sockets (sockops), and identifies the processes that
// `weir lab exec` started. It has two children: run, for a process that carries out a run, and exec.

var errNoCgroup2 = errors.New("no cgroup2 is mounted: mount -t cgroup2 none /sys/fs/cgroup/unified")

// cgroup2Root returns where the unified hierarchy is mounted, which differs between distributions.
func cgroup2Root() (string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		before, after, ok := strings.Cut(s.Text(), " - ")
		fields := strings.Fields(before)
		if ok && len(fields) > 4 && fields[3] == "/" && strings.HasPrefix(after, "cgroup2 ") {
			return fields[4], nil
		}
	}
	return "", errNoCgroup2
}

// cgroupDir returns the directory of a lab's cgroup; the token distinguishes it from others with that name.
func cgroupDir(root, lab, token string) string {
	return filepath.Join(root, "weir-"+lab+"-"+strings.TrimPrefix(token, "weir:")[:8])
}

// Cgroup makes the lab's cgroup and returns its directory.
func (l *Lab) Cgroup() (string, error) { return l.claim.makeCgroup() }

func (r *record) makeCgroup() (string, error) {
	if r.Cgroup == "" {
		return "", errNoCgroup2
	}
	for _, dir := range []string{r.Cgroup, filepath.Join(r.Cgroup, "run"), filepath.Join(r.Cgroup, "exec")} {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("make cgroup: %w", err)
		}
	}
	return r.Cgroup, nil
}

// JoinCgroup moves this process into the lab's cgroup, so that programs attached there see the sockets that it
// opens from then on. Down moves it back if leaveCgroup has not.
func (l *Lab) JoinCgroup() error {
	dir, err := l.Cgroup()
	if err != nil {
		return err
	}
	own, err := ownCgroup()
	if err != nil {
		return err
	}
	if err := moveSelf(filepath.Join(dir, "run")); err != nil {
		return err
	}
	if l.joined == "" {
		l.joined = own
	}
	return nil
}

// leaveCgroup moves this process back. If its cgroup was removed since, or has children with controllers and so takes no
// process, the nearest one above that takes it is used.
func (l *Lab) leaveCgroup() error {
	if l.joined == "" {
		return nil
	}
	root, err := cgroup2Root()
	if err != nil {
		return err
	}
	err = moveSelf(l.joined)
	for dir := l.joined; err != nil && strings.HasPrefix(dir, root+"/"); {
		dir = filepath.Dir(dir)
		if moveSelf(dir) == nil {
			err = nil
		}
	}
	if err == nil {
		l.joined = ""
	}
	return err
}

func moveSelf(dir string) error {
	err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0)
	if err != nil {
		return fmt.Errorf("join cgroup: %w", err)
	}
	return nil
}

// ownCgroup returns the directory of this process's cgroup in the unified hierarchy.
func ownCgroup() (string, error) {
	root, err := cgroup2Root()
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return filepath.Join(root, path), nil
		}
	}
	return "", errNoCgroup2
}

// removeCgroup removes the lab's cgroup with its children. Processes in it must have ended.
func (r *record) removeCgroup() error {
	if r.Cgroup == "" {
		return nil
	}
	var errs []error
	for _, dir := range []string{filepath.Join(r.Cgroup, "run"), filepath.Join(r.Cgroup, "exec"), r.Cgroup} {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove cgroup: %w", err))
		}
	}
	return errors.Join(errs...)
}
