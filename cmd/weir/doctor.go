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
		Short: "Say what Weir can and cannot do on this machine, and what to do about it",
		Long: `Look at this machine and say what Weir can and cannot do on it: kernel, rights, ports and their queues,
programs of others, what moves packets past the kernel, MTU, TCP, tunnels, memory, and what is there of
Weir. Each finding is ok, a note, a problem (mend it first) or blocked (Weir does not work with it), with
what to do. Problems are told first; of what is ok only the number, unless -v.

PORT is the name of a device in this network namespace, or a pattern ('swp*'). Without one, every device
that can be a port is looked at; with -f FILE the ports of that configuration, and by its settings. Nothing
is changed. Without root less is seen, and what was not is told.

The exit code is 0 when there is no problem, 1 when there is one or something is blocked.`,
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
			err := cmd.Context().Err() // interrupted: what was not read is not to be told as not there
			if err != nil {
				return fmt.Errorf("look at this machine: %w", err)
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
	cmd.Flags().StringVarP(&file, "file", "f", "", "judge the ports of this configuration of weir switch, by its settings")
	cmd.Flags().BoolVarP(&all, "verbose", "v", false, "list what is as it should be, too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
