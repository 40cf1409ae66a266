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

	"golang.org/x/sys/unix"
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
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil, nil // another process was faster
	}
	if err != nil {
		return false, nil, err
	}
	c := &claim{dir: dir, lock: lock}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return false, nil, errors.Join(inUse(name), c.release())
	}
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

// removeDraft removes a record whose process died before it got its name. Nothing was made yet.
func removeDraft(dir string) error {
	lock, err := lockNow(filepath.Join(dir, lockFile))
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
		return nil // in the making, or gone
	}
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(dir), lock.Close())
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
