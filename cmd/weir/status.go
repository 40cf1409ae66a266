package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"weir/agent/switchd"
	"weir/cmd/weir/laws"
)

const (
	statusPause  = 200 * time.Millisecond // between the two readings that rates are from
	watchRefresh = time.Second
)

// statusOptions are what the command line asks for.
type statusOptions struct {
	name          string
	watch, asJSON bool
}

func statusCommand() *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say what the switches of this machine enforce, as the kernel has it",
		Long: "Say for every port that " + laws.Switch().Law().Title() + ` is on whether its windows are held to the law (enforced), whether something
keeps the law from some of its traffic or all (degraded), or whether a part is missing (off), why, and what
to do about it. Read from the kernel alone, twice within 200 ms: rates, and what only shows in counters that
move or stand still, are of that time.

The exit code is 0 when every switch is enforced: all its ports, but for those that are down or only observed.
It is 1 otherwise, also where there is no switch, or no port that is to be enforced. With --watch it is 0.`,
		Example: `  weir status
  weir status --watch      # a table that is refreshed each second; q ends it
  weir status --json | jq '.switches[].ports[] | select(.state != "enforced") | {port, word, reason}'`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.name != "" {
				if err := switchd.CheckName(o.name); err != nil {
					return usageError(err)
				}
			}
			err := o.run(cmd)
			if errors.Is(err, fs.ErrPermission) {
				err = fmt.Errorf("weir status needs root, for only root may read what is pinned: run it with sudo (%w)", err)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&o.name, "name", "", "only the switch with this name")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON; with --watch an object a line")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "refresh each second; where the output is no terminal, print a table each second")
	return cmd
}

func (o *statusOptions) run(cmd *cobra.Command) error {
	m, err := laws.Switch().NewMeter(o.name)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if !o.watch {
		return statusOnce(cmd.Context(), out, m, o.asJSON)
	}
	if f, ok := out.(*os.File); ok && !o.asJSON && term.IsTerminal(int(f.Fd())) && term.IsTerminal(int(os.Stdin.Fd())) {
		return watchInTerminal(cmd.Context(), os.Stdin, f, m)
	}
	return watchPlain(cmd.Context(), out, m, o.asJSON)
}

// statusOnce prints one report, and fails unless all is enforced.
func statusOnce(ctx context.Context, w io.Writer, m *switchd.Meter, asJSON bool) error {
	if _, err := m.Read(); err != nil {
		return err
	}
	if !pause(ctx, statusPause) {
		return ctx.Err()
	}
	r, err := m.Read()
	if err != nil {
		return err
	}
	if err := writeStatus(w, r, asJSON); err != nil {
		return err
	}
	if !r.Enforced() {
		return &exitCode{code: exitError}
	}
	return nil
}

// watchPlain prints report after report until ctx is done.
func watchPlain(ctx context.Context, w io.Writer, m *switchd.Meter, asJSON bool) error {
	if _, err := m.Read(); err != nil {
		return err
	}
	for wait := statusPause; pause(ctx, wait); wait = watchRefresh {
		r, err := m.Read()
		if err != nil {
			return err
		}
		if !asJSON {
			fmt.Fprintf(w, "%s\n", time.Now().Format(time.TimeOnly))
		}
		if err := writeStatus(w, r, asJSON); err != nil {
			return err
		}
		if !asJSON {
			fmt.Fprintln(w)
		}
	}
	return nil
}

func writeStatus(w io.Writer, r *switchd.Report, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	return printStatus(w, r)
}

// pause waits, unless ctx is done first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
