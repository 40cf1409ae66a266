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
		Short: "Build a network of an experiment and use it by hand",
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
		Long: `Build the network of FILE, with the guests' TCP set as the scheme wants it, and leave it running.
A scheme with a law of its own is enforced by this process: it stays until it is interrupted and
then takes the lab down.`,
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
	cmd.Flags().StringVar(&scheme, "scheme", "droptail", "scheme whose guests and laws the lab gets")
	cmd.Flags().StringArrayVar(&set, "set", nil, "KEY=VALUE: change one value of FILE (repeatable)")
	return cmd
}

// labUp builds the lab of r. It returns at once when nothing but the network is needed, else when
// ctx is cancelled.
func labUp(ctx context.Context, name string, r *experiment.Run, stdout, stderr io.Writer) (err error) {
	held := laws.Lab().NeedProcess(r)
	started := time.Now()
	l, err := lab.Up(ctx, name, &r.Config, lab.Options{
		Experiment: r.Experiment, Owned: held, Controller: labController(), Scale: r.Scale,
		Progress: func(phase string) { fmt.Fprintln(stderr, phase) },
	})
	if err != nil {
		return err
	}
	for _, u := range l.Unmet() {
		fmt.Fprintln(stderr, "not as asked: "+u)
	}
	if len(l.InitialRTOs()) > 0 {
		fmt.Fprintln(stderr, "not as asked: guests.initial_rto: only the sockets of a run have it, those made by hand start with 1 s")
	}
	fmt.Fprintf(stdout, "lab %s: %d nodes, scheme %s, up in %.1f s; use it with: weir lab exec %sNODE -- COMMAND\n",
		name, len(r.Config.Graph.Nodes), r.Scheme, time.Since(started).Seconds(), chooseLab(name, r))
	if !held {
		return nil
	}
	defer func() { err = errors.Join(err, l.Down()) }()
	stop, err := l.Enforce(r, laws.Lab())
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s is enforced as long as this runs; interrupt it to take the lab down\n", strings.Join(r.Laws, ", "))
	<-ctx.Done()
	return stop()
}

// defaultLabName is the name of a lab for which none was chosen.
func defaultLabName(r *experiment.Run) string { return strings.ToLower(r.Experiment) }

// chooseLab is the option of `weir lab exec` that chooses this lab. It is empty for the only lab if that has its default
// name.
func chooseLab(name string, r *experiment.Run) string {
	labs, err := lab.List()
	if err == nil && len(labs) == 1 && name == defaultLabName(r) {
		return ""
	}
	return "--lab " + name + " "
}

// labController is this program as the controller of a lab; nil: nobody knows where it is.
func labController() []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{self, "controller"}
}

// planOne resolves the first run of one scheme: the lab of that run is what `lab up` builds.
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
	cmd.Flags().StringVar(&name, "lab", "", "name of the lab (not needed while there is one)")
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

// labState says in a few words what may be done with a lab.
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
		Long: `Remove labs: those named, or all that no running experiment uses, also what a killed run left
behind. Nothing that Weir did not make is touched.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cleaned, err := lab.Clean(args...)
			for _, name := range cleaned {
				fmt.Fprintf(cmd.OutOrStdout(), "removed lab %s\n", name)
			}
			return err
		},
	}
}
