package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"weir/bus"
	"weir/bus/pki"
	"weir/config"
	"weir/controller"
	"weir/policy"
)

func policyForgetCommand(f *policyFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forget AGENT",
		Short: "Remove an agent that does not come back from the inventory",
		Long: `Remove the ports, host and VMs of an agent from the inventory, so that policies do not count them as
targets any more. A controller does it, and refuses while it hears the agent: stop the agent first. An agent
that reports again is a target again.`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, func(ctx context.Context, s *policySession) error { return s.forget(ctx, args[0]) })
		},
	}
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would be removed, and remove nothing")
	return cmd
}

// forgotten is what was removed from the inventory, or would be.
type forgotten struct {
	DryRun bool   `json:"dry_run,omitempty"`
	Agent  string `json:"agent"`
	Host   bool   `json:"host"`
	VMs    int    `json:"vms"`
	Ports  int    `json:"ports"`
}

// forget has a controller remove an agent. All controllers hear all agents, so one that hears it not is enough to be sure.
func (s *policySession) forget(ctx context.Context, name string) error {
	if err := s.inventory(ctx); err != nil {
		return err
	}
	for _, w := range s.warnings {
		fmt.Fprintf(s.cmd.ErrOrStderr(), "weir: warning: %s\n", w)
	}
	at := slices.IndexFunc(s.nodes, func(n policy.Node) bool { return n.Name == name })
	if at < 0 {
		var names []string
		for i := range s.nodes {
			names = append(names, s.nodes[i].Name)
		}
		return usageError(fmt.Errorf("no agent %q is in the inventory; %s", config.Clip(name), config.OneOf(name, names)))
	}
	r := forgotten{DryRun: s.dryRun, Agent: name}
	if h := s.nodes[at].Host; h != nil {
		r.Host, r.VMs = true, len(h.VMs)
	}
	if sw := s.nodes[at].Switch; sw != nil {
		r.Ports = len(sw.Ports)
	}
	if !s.dryRun {
		if err := askToForget(ctx, s.conn, name); err != nil {
			return err
		}
	}
	return s.print(r, func() error {
		does := "removed"
		if r.DryRun {
			does = "dry run: would remove"
		}
		_, err := fmt.Fprintf(s.cmd.OutOrStdout(), "%s the agent %s: %d VMs, %d ports\n", does, name, r.VMs, r.Ports)
		return err
	})
}

// askToForget asks the controllers one after the other until one answers.
func askToForget(ctx context.Context, c *bus.Conn, name string) error {
	if c.Identity().Role != pki.Operator {
		return usageError(fmt.Errorf("%s may not ask a controller: want operator/NAME", c.Identity()))
	}
	holders, err := c.Controllers(ctx)
	if err != nil {
		return err
	}
	if len(holders) == 0 {
		return errNoController
	}
	var done controller.Forgotten
	for _, h := range holders {
		to := pki.Identity{Role: pki.Controller, Name: h.Name}
		if err = c.Ask(ctx, to, &bus.Question{What: bus.AskForget, Agent: name}, &done); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	if done.HeardMs != nil {
		return fmt.Errorf("controller %s heard the agent %s %d ms ago: stop it first; nothing was removed", done.Controller, name, *done.HeardMs)
	}
	return nil
}
