package main

import (
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"weir/cmd/weir/laws"
	"weir/experiment"
)

// complete returns the values that a shell offers: those of this machine, or the words of a choice.
type complete = cobra.CompletionFunc

// completeFlags has the completion of each flag, the same in every command that has the flag.
var completeFlags = map[string]complete{
	"name":   switchNames,
	"count":  cobra.FixedCompletions([]string{"opening", "active", "handshake"}, cobra.ShellCompDirectiveNoFileComp),
	"shrink": cobra.FixedCompletions([]string{"allow", "avoid"}, cobra.ShellCompDirectiveNoFileComp),
	"signed": cobra.FixedCompletions([]string{"pass", "limit", "drop"}, cobra.ShellCompDirectiveNoFileComp),
	"vlans":  cobra.FixedCompletions([]string{"separate", "ignore"}, cobra.ShellCompDirectiveNoFileComp),
	"gain":   cobra.FixedCompletions([]string{"paper", "code"}, cobra.ShellCompDirectiveNoFileComp),
	"scale":  cobra.FixedCompletions([]string{"learn", "shim", "unify"}, cobra.ShellCompDirectiveNoFileComp),
	"world":  cobra.FixedCompletions(experiment.BuiltWorlds(), cobra.ShellCompDirectiveNoFileComp),
}

// Flags whose values no shell can guess, and that are not files.
var completeNothing = []string{
	"rate", "buffer", "shape", "target-fraction", "rtt", "interval", "updates", "mark", "metrics", "scope", "for", "list", "seed", "seeds",
	"set", "sweep", "at", "metric", "confidence", "fail-over", "on", "bus", "jobs",
}

// completePorts are the commands whose arguments are ports.
var completePorts = []string{"weir switch", "weir observe", "weir doctor"}

// addCompletions sets the completion of the arguments and flags of every command below this one.
func addCompletions(cmd *cobra.Command) {
	flags := maps.Clone(completeFlags)
	for _, name := range completeNothing {
		flags[name] = cobra.NoFileCompletions
	}
	for name, f := range flags {
		flag := cmd.Flags().Lookup(name)
		if flag == nil || flag.Value.Type() == "bool" {
			continue
		}
		if _, own := cmd.GetFlagCompletionFunc(name); !own {
			_ = cmd.RegisterFlagCompletionFunc(name, f) // the flag exists, and has no completion yet
		}
	}
	if cmd.ValidArgsFunction == nil && slices.Contains(completePorts, cmd.CommandPath()) {
		cmd.ValidArgsFunction = portNames
	}
	for _, c := range cmd.Commands() {
		addCompletions(c)
	}
}

// portNames offers the devices of this network namespace that are not on the command line yet.
func portNames(_ *cobra.Command, named []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	devices, err := net.Interfaces()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []cobra.Completion
	for _, d := range devices {
		if d.Flags&net.FlagLoopback == 0 && strings.HasPrefix(d.Name, begun) && !slices.Contains(named, d.Name) {
			out = append(out, d.Name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// switchNames offers the switches of this machine.
func switchNames(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names, err := laws.Switch().Names()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, begun) })
	return names, cobra.ShellCompDirectiveNoFileComp
}
