package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	fileEntries = 10_000
	checkRuns   = 5
)

// manyPorts returns a configuration file with this many entries, each for a port with its own name and settings.
// The limits of the reader are 20,000 entries and 16 MB (docs/switch.md).
func manyPorts(entries int) string {
	var b strings.Builder
	b.WriteString("kind: Switch\nversion: 2\ndefaults: {rtt: 250us}\nports:\n")
	for i := range entries {
		fmt.Fprintf(&b, "  - {match: swp%d, rate: 10Gbit, buffer: 1MB, fairq: {target_fraction: 0.1}}\n", i+1)
	}
	return b.String()
}

// checkCost measures `weir switch --check` for a large file, compared with a file of one entry.
func checkCost(ctx context.Context, weir string) (rows []row, err error) {
	var took, memory [2]float64
	dir := filepath.Dir(weir)
	var size int
	for i, entries := range []int{1, fileEntries} {
		text := manyPorts(entries)
		size = len(text)
		path := filepath.Join(dir, fmt.Sprintf("switch-%d.yaml", entries))
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, err
		}
		if took[i], memory[i], err = checkFile(ctx, weir, path); err != nil {
			return nil, err
		}
	}
	what := fmt.Sprintf("weir switch --check, %d entries: ", fileEntries)
	return []row{
		{what: what + "time", ours: took[1], reference: took[0], unit: "ms",
			note: fmt.Sprintf("median of %d, against 1 entry; the file has %.1f MB", checkRuns, float64(size)/1e6)},
		{what: what + "memory at most", ours: memory[1] / 1e6, reference: memory[0] / 1e6, unit: "MB", note: "resident, against 1 entry"},
	}, nil
}

// checkFile returns the time in ms and the peak resident memory of a check. The memory comes from separate runs,
// because reading it takes time. It is the largest of all runs, because the last reading is up to 1 ms before the
// end.
func checkFile(ctx context.Context, weir, path string) (ms, bytes float64, err error) {
	var times []float64
	for range checkRuns {
		began := time.Now()
		if out, err := exec.CommandContext(ctx, weir, "switch", "--check", "-f", path).CombinedOutput(); err != nil {
			return 0, 0, fmt.Errorf("weir switch --check: %w: %.300s", err, out)
		}
		times = append(times, 1e3*time.Since(began).Seconds())
	}
	for range checkRuns {
		cmd := exec.CommandContext(ctx, weir, "switch", "--check", "-f", path)
		if err := cmd.Start(); err != nil {
			return 0, 0, err
		}
		ended := make(chan struct{})
		go func() {
			err = cmd.Wait()
			close(ended)
		}()
		most, e := peak(cmd.Process.Pid, ended)
		if err := errors.Join(err, e); err != nil {
			return 0, 0, fmt.Errorf("weir switch --check: %w", err)
		}
		bytes = max(bytes, most)
	}
	return median(times), bytes, nil
}
