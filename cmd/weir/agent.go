package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/agent/agentd"
	"weir/cmd/weir/laws"
	"weir/law"
)

// agentFlags are the flags of `weir agent`.
type agentFlags struct {
	file            string
	check, schema   bool
	takeOver, purge bool
	unpinned        bool
	asJSON          bool
}

func agentCommand() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "agent -f FILE",
		Short: "Report to controllers over the bus, and carry out their grants",
		Long: `Run the agent of this machine until interrupted: a hypervisor, a switch or both. It reports to controllers
what the ports of the switch count, and limits the VMs of the hypervisor as a controller grants. It drops frames
that a VM sends from addresses of others.

The agent fails open. Each grant ends within 1.5 s after its controller has died, or this process. Without a
bus it runs on and connects again.

SIGHUP and 'weir agent reload' read the file again: a change is applied completely, or refused. On SIGTERM or
an interrupt all grants are released, and everything that the agent made is removed. If it is killed,
the next start continues with what is pinned in /sys/fs/bpf/weir/agent/NAME.`,
		Example: `  weir bus enrol agent/h7
  weir agent -f /etc/weir/agent.yaml
  weir agent --check -f FILE        # check it, change nothing
  weir agent -f FILE --take-over    # upgrade in place
  weir agent --purge -f FILE        # remove what a killed process left
  weir agent status`,
		Args: noSuchCommand,
		RunE: f.run,
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "file", "f", "", "`FILE` of kind: Agent")
	flags.BoolVar(&f.check, "check", false, "check the file, and change nothing")
	flags.BoolVar(&f.schema, "schema", false, "print the JSON schema of the file")
	flags.BoolVar(&f.takeOver, "take-over", false, "take over from the running process of this name")
	flags.BoolVar(&f.unpinned, "unpinned", false, "pin nothing: everything ends with the process, and no other one can take over")
	flags.BoolVar(&f.purge, "purge", false, "remove what a killed process left, and exit")
	flags.BoolVar(&f.asJSON, "json", false, "log in JSON, one object per line")
	cmd.AddCommand(agentStatusCommand(), agentReloadCommand())
	return cmd
}

func (f *agentFlags) run(cmd *cobra.Command, _ []string) error {
	if f.schema {
		_, err := cmd.OutOrStdout().Write(agentd.Schema())
		return err
	}
	if f.file == "" {
		return usageError(fmt.Errorf("no file: set it with -f (see '%s --help')", cmd.CommandPath()))
	}
	c, err := agentd.Load(f.file)
	if err == nil && c.Switch != nil && c.Switch.File != "" && f.check {
		_, err = laws.Switch().Load(c.Switch.File)
	}
	if err == nil {
		err = c.CheckLaws(laws.All().Specs())
	}
	if err != nil {
		return usageError(err)
	}
	if f.check {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", f.file)
		return err
	}
	if err := needRights("weir agent"); err != nil {
		return err
	}
	if f.purge {
		if err := agentd.Purge(c); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "removed agent %s\n", c.Name)
		return err
	}
	c.Options = agentd.Options{
		TakeOver: f.takeOver, Unpinned: f.unpinned, Version: weirVersion(), Hangup: hangups(), Log: newLog(cmd.ErrOrStderr(), f.asJSON), Laws: laws.Switch(), Specs: laws.All().Specs(),
	}
	c.OneProcessor()
	return agentd.Run(cmd.Context(), c)
}

func agentReloadCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make the running agent read its file again",
		Long: `Make the running agent of this network namespace read its file again. The file is checked, and applied
completely or not at all. The changes, or the reason for the refusal, are printed.

The exit code is 0 if the file was applied, 1 if it was refused or no agent answers.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := agentName(name)
			if err != nil {
				return err
			}
			a, err := agentd.Reload(cmd.Context(), name, agentd.Here)
			if err != nil {
				return err
			}
			return printAnswer(cmd.OutOrStdout(), a)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the agent (default: the only one that runs here)")
	return cmd
}

// agentName returns the name of an agent, or of the only one that runs in this network namespace.
func agentName(name string) (string, error) {
	if name != "" {
		return name, nil
	}
	names, err := agentd.Names()
	switch {
	case err != nil:
		return "", err
	case len(names) == 0:
		return "", errors.New("no agent runs in this network namespace: start it with weir agent -f FILE")
	case len(names) > 1:
		return "", usageError(fmt.Errorf("several agents run here: give --name, one of %s", strings.Join(names, ", ")))
	}
	return names[0], nil
}

func agentStatusCommand() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the running agent: bus, VMs with their grants, ports",
		Long: `Show the state of the running agent: whether it is connected, which controller it obeys, the grants
that the kernel has for each VM and until when, and what the ports report.

The exit code is 0 if all is well, 1 if something is not, or if no agent answers.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := agentName(name)
			if err != nil {
				return err
			}
			s, err := agentd.ReadStatus(cmd.Context(), name, agentd.Here)
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				err = e.Encode(s)
			} else {
				err = printAgent(cmd.OutOrStdout(), s)
			}
			if err == nil && len(s.Well()) > 0 {
				err = &exitCode{exitError, nil}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the agent (default: the only one that runs here)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printAgent(w io.Writer, s *agentd.Status) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	line("agent\t%s, weir %s, process %d, up %v", s.Name, s.Version, s.PID, time.Duration(s.UpSeconds)*time.Second)
	connected := "not connected"
	if s.Bus.Connected {
		connected = "connected"
	}
	line("bus\t%s: %s", strings.Join(s.Bus.URLs, ", "), connected)
	obeys := "nobody yet"
	if s.Bus.Term > 0 {
		obeys = fmt.Sprintf("%s, term %d", s.Bus.Controller, s.Bus.Term)
	}
	line("obeys\t%s (bucket %d)", obeys, s.Bus.Bucket)
	line("commands\t%s", counted(s.Bus.Commands))
	if h := s.Host; h != nil {
		line("host\t%d, uplink %s, %s", h.Number, h.Uplink, cmp.Or(h.Off, "enforcing"))
		line("grants\tlive %d, set %d, capped %d; refused: %s", h.Live, h.Set, h.Capped, counted(h.Refused))
	}
	if p := s.Switch; p != nil {
		c := &p.Counts
		line("switch\t%v, every %v, %s", uint64(p.Number), p.Interval, cmp.Or(p.Off, "reporting"))
		line("telemetry\treadings %d, late %d, failed %d; messages %d, arrivals %d, lost %d", c.Readings, c.Late, c.Failed, c.Sent, c.Arrivals, c.Lost)
		if p.Laws != nil {
			line("laws\t%s, %s", p.Laws.File, cmp.Or(p.Laws.Off, "running: weir status --name "+p.Laws.Switch))
		}
	}
	if s.Host != nil && len(s.Host.VMs) > 0 {
		line("\nVM\tNAME\tPORT\tSENT\tDROPPED\tGRANT\tFOR\tVALUE\tLEFT")
		for i := range s.Host.VMs {
			printVM(line, &s.Host.VMs[i])
		}
	}
	if s.Switch != nil {
		line("\nPORT\tNUMBER\tRATE\tBUFFER\tSTATE")
		for _, p := range s.Switch.Ports {
			rate, buffer := "-", "-" // not known
			if p.Rate > 0 {
				rate = p.Rate.String()
			}
			if p.Buffer > 0 {
				buffer = p.Buffer.String()
			}
			line("%s\t%d\t%s\t%s\t%s", p.Port, p.Number, rate, buffer, cmp.Or(p.Off, "reporting"))
		}
	}
	return out.Flush()
}

func printVM(line func(string, ...any), v *agentd.VMStatus) {
	begin := fmt.Sprintf("%d\t%s\t%s", v.VM, cmp.Or(v.Name, "-"), v.Port)
	if v.Counts == nil {
		line("%s\t-\t-\t%s", begin, cmp.Or(v.Off, "-"))
		return
	}
	c := v.Counts
	begin = fmt.Sprintf("%s\t%d\t%d", begin, c.Sent, c.Control+c.SpoofedMAC+c.SpoofedIP+c.Malformed+c.OverRate)
	if len(v.Grants) == 0 {
		line("%s\t-", begin)
	}
	for i, g := range v.Grants {
		if i > 0 {
			begin = "\t\t\t\t"
		}
		value := fmt.Sprintf("%d B", g.Value)
		switch g.Kind {
		case "rate":
			value = law.Rate(g.Value).String()
		case "pause":
			value = "-"
		}
		line("%s\t%s\t%s\t%s\t%v", begin, g.Kind, cmp.Or(g.Flow, g.Peer, "all"), value, time.Duration(g.LeftMs)*time.Millisecond)
	}
	if more := v.Live - len(v.Grants); more > 0 {
		line("\t\t\t\t\tand %d more", more)
	}
}

// counted prints counts that are not 0.
func counted(m map[string]uint64) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if m[key] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", key, m[key]))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}
