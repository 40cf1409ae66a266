package switchd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// Names lists the switches that are pinned on this machine, sorted.
func (a *Agent) Names() ([]string, error) { return switchNames(a.every()) }

// switchNames lists the switches where one of the laws is pinned.
func switchNames(laws []LawKeys) ([]string, error) {
	var out []string
	for i := range laws {
		entries, err := os.ReadDir(laws[i].pins)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list switches: %w", err)
		}
		for _, e := range entries {
			if CheckName(e.Name()) == nil && e.IsDir() {
				out = append(out, e.Name())
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
