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

// Clean removes labs: those named, or else every lab that no living process owns, be it left
// running on purpose or left behind by a process that was killed. A lab that a process owns is
// never touched: naming it is an error. What is not recorded as ours is not touched either,
// whatever it is called. The error also tells which processes keep a removed namespace alive.
func Clean(names ...string) (cleaned []string, err error) {
	return clean(names, func(string) bool { return true })
}

// clean is Clean; without names it looks at the labs that mine accepts.
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

// cleanOne removes one lab unless somebody owns it.
func cleanOne(name string) (done bool, left []string, err error) {
	dir := filepath.Join(labsDir, name)
	// The lock is on the file that has this name now. Another process may have removed the lab since we listed it,
	// and a third may have built one of the same name.
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
		return false, nil, errors.Join(fmt.Errorf("%w; look at %s and remove it by hand", err, dir), c.release())
	}
	c.record = *r
	left, err = c.removeAll()
	return err == nil, left, err
}

// removeDraft removes a record whose process died before the record got its name, or while it was removed. Nothing is left
// that it speaks of. A draft that has no lock yet may be of a living process, which then begins another.
func removeDraft(dir string) error {
	switch lock, err := lockfile.Take(filepath.Join(dir, lockFile)); {
	case errors.Is(err, lockfile.ErrHeld):
		return nil // in the making
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
	return fmt.Errorf("lab %s is removed, but its namespaces live on while there is: %s", lab, strings.Join(left, ", "))
}

// removeAll removes everything that the record speaks of and then the record. It ends the
// processes that `weir lab exec` started; left names others that still run in a namespace, which
// lives on without a name until they end.
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
		left = append(left, "something that holds the namespace of "+node)
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
