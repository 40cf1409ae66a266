package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/lab"
)

func labCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Build the network of an experiment for manual use",
		Args:  noSuchCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(labUpCommand(), labExecCommand(), labListCommand(), labCleanCommand())
	return cmd
}

func labUpCommand() *cobra.Command {
	var name, scheme string
	var set []string
	cmd := &cobra.Command{
		Use:   "up FILE",
		Short: "Build the network of FILE and leave it running",
		Long: `Build the network of FILE, with the guests' TCP configured for the scheme, and leave it running.
If the scheme has a law that needs a process, this one enforces it: it runs until it is
interrupted, and then removes the lab.`,
		Example: `  weir lab up experiments/incast.yaml
  weir lab exec sender1 -- cat /proc/net/dev
  weir lab exec sender1 -- ping -c 3 receiver1
  weir lab clean`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := planOne(args[0], scheme, set)
			if err != nil {
				return usageError(err)
			}
			if name == "" {
				name = defaultLabName(r)
			}
			return labUp(cmd.Context(), name, r, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the lab (default the experiment's id)")
	cmd.Flags().StringVar(&scheme, "scheme", "droptail", "scheme whose guest settings and laws are used")
	cmd.Flags().StringArrayVar(&set, "set", nil, "KEY=VALUE: change one value of FILE (repeatable)")
	return cmd
}

// labUp builds the lab of r and attaches its laws. It returns at once if they stay without this process. Otherwise it
// returns when ctx is cancelled.
func labUp(ctx context.Context, name string, r *experiment.Run, stdout, stderr io.Writer) error {
	works := laws.Lab()
	if err := works.Check(r); err != nil {
		return err
	}
	needsProcess := works.NeedProcess(r)
	started := time.Now()
	l, err := lab.Up(ctx, name, &r.Config, lab.Options{
		Experiment: r.Experiment, Owned: needsProcess, Controller: labProgram("controller"), Agent: labProgram("agent", "--unpinned"), Scale: r.Scale,
		Commanded: works.Commanded(r),
		Progress:  func(phase string) { fmt.Fprintln(stderr, phase) },
	})
	if err != nil {
		return err
	}
	stop, err := l.Enforce(ctx, r, works)
	if err != nil {
		return errors.Join(err, l.Down())
	}
	for _, u := range l.Unmet() {
		fmt.Fprintln(stderr, "not applied: "+u)
	}
	if len(l.InitialRTOs()) > 0 {
		fmt.Fprintln(stderr, "not applied: guests.initial_rto: only sockets of a run have it; others start with 1 s")
	}
	fmt.Fprintf(stdout, "lab %s: %d nodes, scheme %s, up in %.1f s; use it with: weir lab exec %sNODE -- COMMAND\n",
		name, len(r.Config.Graph.Nodes), r.Scheme, time.Since(started).Seconds(), chooseLab(name, r))
	if !needsProcess {
		return l.Leave()
	}
	fmt.Fprintf(stdout, "%s is enforced while this process runs; interrupt it to remove the lab\n", strings.Join(r.Laws, ", "))
	<-ctx.Done()
	err = errors.Join(stop(), l.Down())
	if left := l.Left(); left != nil {
		fmt.Fprintf(stderr, "weir: warning: %v\n", left)
	}
	return err
}

// defaultLabName is the name of a lab that was given none.
func defaultLabName(r *experiment.Run) string { return strings.ToLower(r.Experiment) }

// chooseLab returns the option of `weir lab exec` that selects this lab. It is empty for the only lab if that has its
// default name.
func chooseLab(name string, r *experiment.Run) string {
	labs, err := lab.List()
	if err == nil && len(labs) == 1 && name == defaultLabName(r) {
		return ""
	}
	return "--lab " + name + " "
}

// labProgram returns the command that runs this program with these arguments in a lab, or nil if its path is unknown.
func labProgram(args ...string) []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return append([]string{self}, args...)
}

// planOne resolves the first run of one scheme, whose lab `lab up` builds.
func planOne(path, scheme string, set []string) (*experiment.Run, error) {
	file, err := laws.All().Load(path)
	if err != nil {
		return nil, err
	}
	plan, err := file.Plan(experiment.Options{Worlds: []string{"lab"}, Schemes: []string{scheme}, SeedCount: 1, Set: set})
	if err != nil {
		return nil, err
	}
	return plan.Runs[0], nil
}

func labExecCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "exec NODE -- COMMAND [ARG...]",
		Short:   "Run a command inside a node",
		Example: `  weir lab exec sender1 -- iperf3 -s`,
		Args:    usageArgs(cobra.MinimumNArgs(2)),
		RunE: func(_ *cobra.Command, args []string) error {
			node, argv := args[0], args[1:]
			if argv[0] == "--" {
				argv = argv[1:]
			}
			return lab.Exec(name, node, argv) // on success this process becomes the command
		},
	}
	cmd.Flags().StringVar(&name, "lab", "", "name of the lab (optional if there is only one)")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func labListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the labs that are up",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			labs, err := lab.List()
			if err != nil {
				return err
			}
			if asJSON {
				if labs == nil {
					labs = []lab.Info{}
				}
				return json.NewEncoder(cmd.OutOrStdout()).Encode(labs)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "LAB\tEXPERIMENT\tNODES\tAGE\tSTATE")
			for _, l := range labs {
				fmt.Fprintf(w, "%s\t%s\t%d\t%v\t%s\n", l.Name, l.Experiment, len(l.Nodes)-len(l.LabNodes), time.Since(l.Created).Round(time.Second), labState(l))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// labState describes the state of a lab, with the command that removes what a killed run left.
func labState(l lab.Info) string {
	switch {
	case l.Owned && l.Alive:
		return fmt.Sprintf("used by process %d", l.Pid)
	case l.Owned || !l.Built:
		return "left behind: weir lab clean " + l.Name
	}
	return "up"
}

func labCleanCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "clean [LAB...]",
		Short: "Remove labs: those named, or all that no running experiment uses",
		Long: `Remove the named labs, or all that no running experiment uses. That includes what a killed run left
behind. Only what Weir made is removed.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cleaned, err := lab.Clean(args...)
			for _, name := range cleaned {
				fmt.Fprintf(cmd.OutOrStdout(), "removed lab %s\n", name)
			}
			return err
		},
	}
}
