// Command weir contains all of Weir in one binary: the experiments, the lab that they run in, and the programs that an
// operator runs on switches. Each command has one file here, which only parses and prints.
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
	exitError   = 1 // it failed
	exitUsage   = 2 // usage: an unknown flag, a broken file
	exitRefuted = 3 // it succeeded, and a claim of the experiment is refuted
)

// exitCode is an error with the exit code of the process. An empty text prints nothing.
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
	// A cancelled context stops a run early: measurements are kept, the network is removed. A second signal ends the
	// process at once; `weir lab clean` then removes the rest.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line and returns the exit code.
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
		Long: `Weir keeps the queues of a data centre short and its shares fair by changing only what the
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
	root.AddCommand(runCommand(), figuresCommand(), compareCommand(), labCommand(), switchCommand(), controllerCommand(), agentCommand(), busCommand(), policyCommand(), replayCommand(), traceCommand(), deadlineCommand(), workerCommand(), statusCommand(), observeCommand(), doctorCommand(), openflowCommand(), versionCommand(), manCommand())
	addCompletions(root)
	return root
}

// noSuchCommand refuses an argument in the place of a subcommand, and suggests the nearest one.
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
	hint := "the commands are: " + strings.Join(names, ", ")
	if near := config.Nearest(args[0], names); near != "" {
		hint = fmt.Sprintf("did you mean %s %s?", cmd.CommandPath(), near)
	}
	return usageError(fmt.Errorf("no command %q; %s", config.Clip(cmd.CommandPath()+" "+args[0]), hint))
}

// usageArgs makes a wrong number of arguments a usage error that shows the command's syntax.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError(fmt.Errorf("%w; usage: %s", err, cmd.UseLine()))
		}
		return nil
	}
}
