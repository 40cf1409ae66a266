// Command replay runs the native law on traces that tools/fairq-differential kept (-keep), and compares it with
// the kernel's answers. It prints counts and differences, and exits with 1 if there is one.
package main

import (
	"errors"
	"fmt"
	"os"

	"weir/datapath/fairq/lawtrace"
)

func main() {
	if err := replay(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "replay: "+err.Error())
		os.Exit(1)
	}
}

func replay(files []string) error {
	if len(files) == 0 {
		return errors.New("name one trace or more, as tools/fairq-differential -keep writes them")
	}
	var all lawtrace.Report
	for _, name := range files {
		r, err := replayFile(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all.Add(r)
	}
	if err := all.Print(os.Stdout); err != nil {
		return err
	}
	if all.Differences > 0 {
		return fmt.Errorf("%d differences", all.Differences)
	}
	return nil
}

func replayFile(name string) (*lawtrace.Report, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	t, err := lawtrace.Read(f)
	if err != nil {
		return nil, err
	}
	return t.Replay()
}
