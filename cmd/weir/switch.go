package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"

	"github.com/spf13/cobra"

	"weir/agent/switchd"
)

func switchCommand() *cobra.Command {
	c := switchd.Defaults()
	var scope []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "switch PORT...",
		Short: "Keep the queues of this switch's ports short (FairQ)",
		Long: `Put FairQ on ports of this switch and keep it there until interrupted. PORT is the name of a
device in this network namespace, or a pattern ('swp*'). A port that is deleted and made again, or
comes later, is attached as soon as it is there.

Name every port that traffic passes: the window of a flow is written into the acknowledgements that
leave by another port than its data. Every port needs a queue of its own whose length can be read, a
tbf or htb; rate and buffer are read from it.

At SIGTERM or an interrupt the windows are let go, within a second, and FairQ is taken off. Tables stay
pinned in /sys/fs/bpf/weir/switch/NAME for the next start. A process that is killed leaves FairQ in place: after a
second it lets the windows go by itself, and the next start takes it over.`,
		Example: `  weir switch 'swp*'
  weir switch eth1 eth2 --rate 10Gbit --buffer 1MB
  weir switch 'swp*' --take-over    # upgrade in place
  weir switch --purge               # remove what a killed one left`,
		Args: usageArgs(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := switchd.CheckName(c.Name); err != nil {
				return usageError(err)
			}
			c.Ports, c.Version = args, weirVersion()
			if len(args) == 0 && c.Purge {
				return switchd.Purge(c.Name)
			}
			for _, text := range scope {
				p, err := netip.ParsePrefix(text)
				if err != nil {
					return usageError(fmt.Errorf("--scope: %w", err))
				}
				c.Scope = append(c.Scope, p)
			}
			if err := c.Check(); err != nil {
				return usageError(fmt.Errorf("%w (see '%s --help')", err, cmd.CommandPath()))
			}
			c.Log = newLog(cmd.ErrOrStderr(), asJSON)
			return switchd.Run(cmd.Context(), &c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Name, "name", c.Name, "name of the switch, where a machine has several")
	f.TextVar(&c.Rate, "rate", c.Rate, "rate of the ports, e.g. 10Gbit (default that of the port's tbf or htb)")
	f.TextVar(&c.Buffer, "buffer", c.Buffer, "buffer of the ports, e.g. 1MB (default that of the port's tbf or htb)")
	f.Float64Var(&c.TargetFraction, "target-fraction", c.TargetFraction, "queue to keep, as a fraction of the buffer (alpha)")
	f.TextVar(&c.RTT, "rtt", c.RTT, "round trip of flows when nothing queues: limits a flow's window")
	f.TextVar(&c.Interval, "interval", c.Interval, "sample the queues this often (T)")
	f.IntVar(&c.Updates, "updates", c.Updates, "samples a window update (M)")
	f.StringVar(&c.Count, "count", c.Count, "flows that count: active (sent lately) or handshake (opened, not closed)")
	f.StringVar(&c.Shrink, "shrink", c.Shrink, "whether the right edge of a window may move left: allow or avoid")
	f.StringVar(&c.Gain, "gain", c.Gain, "how strongly windows answer the queue: paper, or code (the authors' program)")
	f.StringArrayVar(&scope, "scope", nil, "manage only flows with both ends in these PREFIXes (repeatable; default all)")
	f.BoolVar(&c.Purge, "purge", false, "leave nothing pinned at the end; without PORT: remove what is pinned now")
	f.BoolVar(&c.TakeOver, "take-over", false, "take over from the process that runs under this name")
	f.BoolVar(&c.Renew, "renew", false, "replace pinned tables that another version of Weir left; flows are adopted")
	f.BoolVar(&asJSON, "json", false, "log in JSON, a line each")
	return cmd
}

func newLog(w io.Writer, asJSON bool) *slog.Logger {
	if asJSON {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}
