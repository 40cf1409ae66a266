package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weir/agent/switchd"
	"weir/law"
)

func statusCommand() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say what the switches of this machine enforce, as the kernel has it",
		Long: `Say for every port that FairQ is on whether windows are held (enforced), are let pass because no
'weir switch' lives (released), or cannot be held (off), and why. Read from the kernel alone.

The exit code is 0 when every port of every switch is enforced, 1 otherwise.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if name != "" {
				if err := switchd.CheckName(name); err != nil {
					return usageError(err)
				}
			}
			r, err := switchd.Status(name)
			if err != nil {
				return err
			}
			if asJSON {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(r)
			} else {
				err = printStatus(cmd.OutOrStdout(), r)
			}
			if err == nil && !r.Enforced() {
				err = &exitCode{code: exitError}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "only the switch with this name")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printStatus(w io.Writer, r *switchd.Report) error {
	if len(r.Switches) == 0 {
		_, err := fmt.Fprintln(w, "no switch: nothing is pinned (start one with: weir switch PORT...)")
		return err
	}
	var errs []error
	for i := range r.Switches {
		errs = append(errs, printSwitch(w, &r.Switches[i]))
	}
	return errors.Join(errs...)
}

func printSwitch(w io.Writer, s *switchd.Switch) error {
	fmt.Fprintf(w, "switch %s: %s", s.Name, s.State)
	if s.Reason != "" {
		fmt.Fprintf(w, " (%s)", s.Reason)
	}
	if s.State == switchd.Enforced {
		fmt.Fprintf(w, " by process %d, weir %s", s.PID, s.Version)
	}
	fmt.Fprintln(w)
	if len(s.Ports) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PORT\tSTATE\tFLOWS\tWINDOW\tTARGET\tQUEUE\tLONGEST\tPACKETS\tREWRITTEN")
	for _, p := range s.Ports {
		window := "-"
		if p.GrantBytes > 0 {
			window = law.Bytes(p.GrantBytes).String()
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%v\t%v\t%v\t%d\t%d\n", p.Port, p.State, p.Flows, window,
			law.Bytes(p.TargetBytes), law.Bytes(p.QueueBytes), law.Bytes(p.QueueMax), p.Packets, p.Rewritten)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range s.Ports {
		p := &s.Ports[i]
		fmt.Fprintf(w, "%s: passed as they were: %s\n", p.Port, p.PassedText())
		if p.Reason != "" {
			fmt.Fprintf(w, "%s: %s: %s\n", p.Port, p.State, p.Reason)
		}
		for _, warning := range p.Warnings {
			fmt.Fprintf(w, "%s: warning: %s\n", p.Port, warning)
		}
	}
	return nil
}
