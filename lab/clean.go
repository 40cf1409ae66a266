package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"weir/internal/lockfile"
)

// Clean removes labs: those named, or without names every lab that no running process owns. Such a lab was left
// running on purpose, or its process was killed. Clean never removes a lab with an owner: naming one is an error.
// It never removes namespaces that are not recorded as the lab's, whatever their names. The error also lists the
// processes that keep a removed namespace alive.
func Clean(names ...string) (cleaned []string, err error) {
	return clean(names, func(string) bool { return true })
}

// clean is Clean; without names it considers the labs that mine accepts.
func clean(names []string, mine func(name string) bool) (cleaned []string, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("cleaning labs needs root: run it with sudo")
	}
	all, drafts, err := labNames()
	if err != nil {
		return nil, err
	}
	for _, d := range drafts {
		err = errors.Join(err, removeDraft(filepath.Join(labsDir, d)))
	}
	asked := len(names) > 0
	if !asked {
		names = slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !mine(name) })
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			err = errors.Join(err, noLab(name, all))
			continue
		}
		done, left, e := cleanOne(name)
		if e != nil && !asked && errors.As(e, new(*inUseError)) {
			continue
		}
		err = errors.Join(err, e, stillInside(name, left))
		if done {
			cleaned = append(cleaned, name)
		}
	}
	removeEmptyDirs()
	return cleaned, err
}

// cleanOne removes one lab unless a process owns it.
func cleanOne(name string) (done bool, left []string, err error) {
	dir := filepath.Join(labsDir, name)
	// The lock is on the file that has this name now. Since the list was made, another process may have removed
	// the lab, and a third may have built a new one with the same name.
	lock, err := lockfile.Take(filepath.Join(dir, lockFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil, nil // another process was faster
	case errors.Is(err, lockfile.ErrHeld):
		return false, nil, inUseBySomebody(name)
	case err != nil:
		return false, nil, err
	}
	c := &claim{dir: dir, lock: lock}
	r, err := readRecord(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil, c.release()
	}
	if err != nil {
		return false, nil, errors.Join(fmt.Errorf("%w; inspect %s and remove it by hand", err, dir), c.release())
	}
	c.record = *r
	left, err = c.removeAll()
	return err == nil, left, err
}

// removeDraft removes a record whose process died before the record had its name, or while the record was removed.
// Nothing that it lists exists. A draft without a lock may be that of a running process, which then starts another
// one.
func removeDraft(dir string) error {
	switch lock, err := lockfile.Take(filepath.Join(dir, lockFile)); {
	case errors.Is(err, lockfile.ErrHeld):
		return nil // being created
	case err == nil:
		defer lock.Close()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := discardRecord(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func stillInside(lab string, left []string) error {
	if len(left) == 0 {
		return nil
	}
	return fmt.Errorf("lab %s is removed, but its namespaces remain until these end: %s", lab, strings.Join(left, ", "))
}

// removeAll removes everything in the record, then the record. It ends the processes that `weir lab exec` started.
// left lists other processes that still run in a namespace; the namespace remains without a name until they end.
func (c *claim) removeAll() (left []string, err error) {
	errs := []error{endExecuted(&c.record)}
	nodes := slices.Sorted(maps.Keys(c.Namespaces))
	inside := processesIn(c.entries(nodes))
	var busy []string
	for _, node := range nodes {
		for _, process := range inside[c.Namespaces[node]] {
			left = append(left, fmt.Sprintf("%s in %s", process, node))
			busy = append(busy, node)
		}
	}
	held, err := c.removeNamespaces(nodes, busy)
	for _, node := range held {
		left = append(left, "an unknown user of the namespace of "+node)
	}
	errs = append(errs, err, c.removeCgroup())
	if err := errors.Join(errs...); err != nil {
		return left, errors.Join(err, c.release())
	}
	return left, c.forget()
}

func (c *claim) entries(nodes []string) []string {
	var list []string
	for _, n := range nodes {
		list = append(list, c.Namespaces[n])
	}
	return list
}
