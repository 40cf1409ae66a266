package switchd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Names lists the switches that are pinned on this machine.
func Names() ([]string, error) {
	entries, err := os.ReadDir(pinRoot)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list switches: %w", err)
	}
	var out []string
	for _, e := range entries {
		if CheckName(e.Name()) == nil && e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out, nil
}
