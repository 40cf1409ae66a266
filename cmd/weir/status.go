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
	statusPause  = 200 * time.Millisecond // between the two readings from which rates are calculated
	watchRefresh = time.Second
)

// statusOptions are the options of the command line.
type statusOptions struct {
	name          string
	watch, asJSON bool
	operator      operatorFlags // with --bus: the whole system
}

func statusCommand() *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the switches of this machine enforce, or with --bus the whole system",
		Long: "Show the state of every port with " + laws.Switch().Title() + `. A port is enforced if its windows are limited as configured, degraded if
something keeps the law from some or all of its traffic, and off if a part is missing. The reason and the
remedy follow. The state is read from the kernel alone, twice within 200 ms: rates, and findings that need two
readings of a counter, are of that time.

The exit code is 0 if every switch is enforced: all ports except those that are down or only observed.
It is 1 otherwise, also without a switch, or without a port to enforce on. With --watch it is 0.

With --bus the command asks all controllers and agents on the bus instead, with an operator's certificate, and
shows controllers, agents and policies, what is wrong first. The exit code is 0 if nothing is wrong, else 1, and
with --watch 0.`,
		Example: `  weir status
  weir status --bus tls://10.0.0.5:4222 --keys /etc/weir/operator --watch
  weir status --watch      # a table that is refreshed each second; q ends it
  weir status --json | jq '.switches[].ports[] | select(.state != "enforced") | {port, word, reason}'`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.name != "" {
				if err := switchd.CheckName(o.name); err != nil {
					return usageError(err)
				}
			}
			if len(o.operator.urls) > 0 {
				if o.name != "" {
					return usageError(errors.New("--bus excludes --name: it shows the whole system"))
				}
				return o.runSystem(cmd)
			}
			err := o.run(cmd)
			if errors.Is(err, fs.ErrPermission) {
				err = fmt.Errorf("weir status needs root, because only root may read the pinned tables: run it with sudo (%w)", err)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&o.name, "name", "", "only the switch with this name")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON; with --watch one object per line")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "refresh every second; if the output is not a terminal, print a table every second")
	o.operator.add(cmd.Flags(), nil)
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
	if f, ok := screenOf(out); ok && !o.asJSON {
		return watchInTerminal(cmd.Context(), os.Stdin, f, m)
	}
	return watchPlain(cmd.Context(), out, m, o.asJSON)
}

// screenOf returns the terminal that w is, if keys can be read too.
func screenOf(w io.Writer) (*os.File, bool) {
	f, ok := w.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd())) && term.IsTerminal(int(os.Stdin.Fd()))
}

// statusOnce prints one report. It fails unless everything is enforced.
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

// watchPlain prints reports until ctx is done.
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

// pause waits for the time d, or until ctx is done.
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
