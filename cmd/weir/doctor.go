package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"weir/agent/doctor"
	"weir/cmd/weir/laws"
)

func doctorCommand() *cobra.Command {
	var asJSON, all bool
	var file string
	cmd := &cobra.Command{
		Use:   "doctor [PORT...]",
		Short: "Check what Weir can do on this machine, with a remedy for each problem",
		Long: `Check this machine and report what Weir can do on it: kernel, rights, ports and their queues,
other programs, traffic that bypasses the kernel, MTU, TCP, tunnels, memory, and the state of
Weir. Each finding is ok, a note, a problem (fix it first) or blocked (Weir does not work with it), with
a remedy. Problems come first. Findings that are ok are only counted, unless -v is set.

PORT is the name of a device in this network namespace, or a pattern ('swp*'). Without PORT, every device
that can be a port is checked; with -f FILE, the ports of that configuration with its settings. Nothing
is changed. Without root less can be read, and the output lists what was not.

The exit code is 0 without a problem, 1 if there is a problem or something is blocked.`,
		Example: `  weir doctor
  weir doctor 'swp*'
  weir doctor -f /etc/weir/switch.yaml
  weir doctor eth1 eth2 --json`,
		Args: usageArgs(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, port := range args {
				if err := doctor.CheckPattern(port); err != nil {
					return usageError(err)
				}
			}
			o := doctor.Options{Ports: args, Version: weirVersion(), Agent: laws.Switch()}
			if file != "" {
				c, err := laws.Switch().Load(file)
				if err != nil {
					return usageError(err)
				}
				warnOld(cmd.ErrOrStderr(), c)
				o.Config = c
			}
			facts := doctor.Gather(cmd.Context(), o)
			err := cmd.Context().Err() // interrupted: unread parts must not be reported as missing
			if err != nil {
				return fmt.Errorf("check this machine: %w", err)
			}
			r := doctor.Check(facts, o)
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				err = e.Encode(r)
			} else {
				err = r.Print(cmd.OutOrStdout(), all)
			}
			if err == nil && !r.Fine() {
				err = &exitCode{code: exitError}
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "check the ports of this configuration of weir switch, with its settings")
	cmd.Flags().BoolVarP(&all, "verbose", "v", false, "list findings that are ok, too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
