package switchd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// SwitchNames lists the switches that are pinned on this machine.
func SwitchNames() ([]string, error) {
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
