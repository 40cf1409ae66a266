package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/agent/switchd"
	"weir/cmd/weir/laws"
	"weir/law"
)

// observeFlags are the flags of `weir observe`: those of `weir switch` that affect the prediction, and its own.
type observeFlags struct {
	switchFlags
	long law.Duration
	list int
}

func observeCommand() *cobra.Command {
	title := laws.Switch().Title()
	f := observeFlags{long: law.Duration(time.Minute), list: 10}
	cmd := &cobra.Command{
		Use:   "observe PORT... | -f FILE",
		Short: "Predict what " + title + " would do on ports of this switch, without changing anything",
		Long: "Observe ports of this switch for a while, and report for each what " + title + ` would grant its flows, which flows
it would limit, and the expected queue and drops next to the measured ones. No packet
is changed. docs/observe.md explains the calculation and its errors.

Name every port that traffic passes, as for weir switch. If a running weir switch manages all of them, its
tables are read. If none manages any, a program that only observes is attached meanwhile. It leaves nothing behind.

An interrupt ends it early, with a report of what was seen until then.`,
		Example: `  weir observe 'swp*'
  weir observe eth1 eth2 --for 10s --target-fraction 0.1
  weir observe -f /etc/weir/switch.yaml --json`,
		Args: usageArgs(cobra.ArbitraryArgs),
		RunE: f.run,
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "file", "f", "", "observe the ports of FILE, with its settings")
	flags.TextVar(&f.long, "for", f.long, "how long to observe")
	flags.IntVar(&f.list, "list", f.list, "flows to list per port")
	for _, l := range fileFlags() {
		if l.Observe {
			flags.String(l.Name, l.Default, l.Help)
		}
	}
	flags.StringArrayVar(&f.scope, "scope", nil, "only flows with both ends in these PREFIXes (repeatable; default all)")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	f.name = switchd.DefaultName
	return cmd
}

func (f *observeFlags) run(cmd *cobra.Command, args []string) error {
	long := switchd.ObserveFor{Time: f.long.Std(), List: f.list}
	if err := long.Check(); err != nil {
		return usageError(err)
	}
	c, err := f.config(cmd, args)
	if err != nil {
		return usageError(err)
	}
	if err := needRights("weir observe"); err != nil {
		return err
	}
	warnOld(cmd.ErrOrStderr(), c)
	c.Version, c.Log = weirVersion(), newLog(cmd.ErrOrStderr(), f.asJSON)
	o, err := switchd.Observe(cmd.Context(), c, long)
	if err != nil {
		return err
	}
	if f.asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(o)
	}
	return printObservation(cmd.OutOrStdout(), o)
}

func printObservation(w io.Writer, o *switchd.Observation) error {
	how := "nothing was rewritten"
	if o.Along != "" {
		how = "read from the tables of switch " + o.Along
	}
	fmt.Fprintf(w, "observed %d ports for %.0f s: %s\n", len(o.Ports), o.Seconds, how)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	with := "WITH " + strings.ToUpper(laws.Switch().Title())
	fmt.Fprintln(t, "PORT\tRATE\tFLOWS\tWINDOW\tLIMITED\tQUEUE: MEAN, P99, MOST\t"+with+"\tDROPS/S\t"+with)
	for i := range o.Ports {
		p := &o.Ports[i]
		window := "-"
		if p.Flows > 0 {
			window = shortBytes(p.Then.WindowBytes)
		}
		fmt.Fprintf(t, "%s\t%v\t%.0f\t%s\t%d of %d\t%s, %s, %s\t%s\t%s\t%s\n", p.Port, law.Rate(p.RateBps), p.Flows, window,
			p.Limited, p.FlowsSeen, shortBytes(p.Now.MeanBytes), shortBytes(p.Now.P99Bytes), shortBytes(p.Now.MostBytes),
			between(p.Then.MeanBytes, p.Then.LeastBytes, p.Then.MostBytes, shortBytes), perSecond(p.Now.DropsPerSecond),
			between(p.Then.DropsPerSecond, p.Then.DropsPerSecond, p.Then.DropsMost, perSecond))
	}
	errs := []error{t.Flush()}
	for i := range o.Ports {
		errs = append(errs, printObserved(w, &o.Ports[i]))
	}
	return errors.Join(errs...)
}

// printObserved prints the results that do not fit in the table.
func printObserved(w io.Writer, p *switchd.ObservedPort) error {
	if p.Flows > 0 {
		measured := "no handshake seen"
		if p.HandshakeMs > 0 {
			measured = fmt.Sprintf("fastest handshake %.3g ms", p.HandshakeMs)
		}
		fmt.Fprintf(w, "%s: target %s of %s, round-trip time %.3g ms (%s); window of a canary's flows %s; %d flows may begin at once without a drop\n",
			p.Port, law.Bytes(p.TargetBytes), law.Bytes(p.BufferBytes), p.RTTMs, measured, shortBytes(p.Then.CanaryBytes), p.Then.NewFlows)
	}
	if p.OtherPercent >= 1 {
		fmt.Fprintf(w, "%s: %.0f %% of the rate is other traffic\n", p.Port, p.OtherPercent)
	}
	if p.Then.PacedPercent > 0 {
		fmt.Fprintf(w, "%s: one segment of each flow exceeds BDP and target for %.3g %% of the time; with credits, %s acknowledgements a second would wait, %.3g ms each\n",
			p.Port, p.Then.PacedPercent, perSecond(p.Then.ParkedPerSecond), p.Then.WaitMs)
	}
	for _, note := range p.Notes {
		fmt.Fprintf(w, "%s: %s\n", p.Port, note)
	}
	if len(p.LimitedFlows) == 0 {
		return nil
	}
	fmt.Fprintf(w, "%s: flows that would be limited, %d of %d:\n", p.Port, len(p.LimitedFlows), p.Limited)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  FROM\tTO\tIN FLIGHT: MEAN, MOST\tWINDOW")
	for _, l := range p.LimitedFlows {
		fmt.Fprintf(t, "  %v\t%v\t%s, %s\t%s\n", l.From, l.To, shortBytes(l.InFlightMean), shortBytes(l.InFlightMost), shortBytes(p.Then.WindowBytes))
	}
	return t.Flush()
}

// between formats a value, with its range if there is one.
func between(expected, least, most float64, write func(float64) string) string {
	texts := []string{write(least), write(most)}
	if texts[0] == texts[1] {
		return write(expected)
	}
	return write(expected) + " (" + strings.Join(texts, " to ") + ")"
}

// perSecond formats a rate with three digits. A value below one is not shown as 0.
func perSecond(n float64) string {
	if n < 999.5 {
		return fmt.Sprintf("%.3g", n)
	}
	return shortNumber(n)
}
