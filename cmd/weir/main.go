// Command weir is the whole of Weir in one binary: experiments, the lab they run in, and what an
// operator runs on switches. Each command has one file here, and only parses and prints.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"weir/config"
)

// Exit codes, the same for every command.
const (
	exitError   = 1 // it could not be done
	exitUsage   = 2 // it was asked for wrongly: an unknown flag, a broken file
	exitRefuted = 3 // it was done, and a claim of the experiment does not hold
)

// exitCode is an error that says which code the process ends with. An empty text prints nothing.
type exitCode struct {
	code int
	err  error
}

func (e *exitCode) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitCode) Unwrap() error { return e.err }

func usageError(err error) error {
	if err == nil {
		return nil
	}
	return &exitCode{exitUsage, err}
}

func main() {
	// A cancelled context is how a run is cut short: what was measured is kept, what was built is
	// taken down. A second signal ends the process at once; `weir lab clean` then removes the rest.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run carries out one command line and gives the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := rootCommand()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(stderr, "weir: "+text)
	}
	var e *exitCode
	if errors.As(err, &e) {
		return e.code
	}
	return exitError
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "Congestion control for data centres, enforced by the network",
		Long: `Weir keeps the queues of a data centre short and its shares fair by acting only on what the
operator owns. Tenants' machines and their TCP stay as they are.

Start with:  weir run experiments/incast.yaml --world lab --scheme droptail,ecn`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError(fmt.Errorf("%w (see '%s --help')", err, cmd.CommandPath()))
	})
	root.AddCommand(runCommand(), figuresCommand(), compareCommand(), labCommand(), switchCommand(), controllerCommand(), statusCommand(), observeCommand(), doctorCommand(), openflowCommand(), versionCommand(), manCommand())
	addCompletions(root)
	return root
}

// noSuchCommand refuses an argument where only the name of a subcommand can stand, and names the nearest one.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	hint := "there are: " + strings.Join(names, ", ")
	if near := config.Nearest(args[0], names); near != "" {
		hint = fmt.Sprintf("did you mean %s %s?", cmd.CommandPath(), near)
	}
	return usageError(fmt.Errorf("no command %q; %s", config.Clip(cmd.CommandPath()+" "+args[0]), hint))
}

// usageArgs makes a wrong number of arguments a usage error that names the command's form.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError(fmt.Errorf("%w; usage: %s", err, cmd.UseLine()))
		}
		return nil
	}
}
