package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/agent/agentd"
	"weir/bus"
	"weir/bus/pki"
	"weir/controller"
	"weir/law"
	"weir/policy/store"
)

// chain is a decision, and what became of it at hosts.
type chain struct {
	controller.Decision
	Hosts []traced `json:"hosts"`
}

// traced is a command that an agent carried out.
type traced struct {
	Agent string `json:"agent"`
	// RoundTripNs is the time from the agent's message to the command that answers it, without the time for which the controller had
	// the message: on the bus, there and back. 0: not known.
	RoundTripNs time.Duration `json:"round_trip_ns,omitempty"`
	agentd.Obeyed
}

func traceCommand() *cobra.Command {
	var f operatorFlags
	var vm string
	var last int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Show decisions of controllers: from the signal to the limited packet, with times",
		Long: `Show the newest decisions of controllers, each from the report of a switch to the packet that it limited.
A decision has the report, the law's step and its reason, the commands, and the grants in the kernel. The last
line is the first ACK that was seen limited. Controllers and agents keep the newest 512 in memory.

Clocks of machines are not compared: times are differences on one machine. A command returns the stamp of the
host's last message, so the way of these two over the bus is known.

The command connects to the bus with an operator's certificate: weir bus enrol operator/NAME.`,
		Example: `  weir trace --bus tls://10.0.0.5:4222 --keys /etc/weir/operator
  weir trace --vm web1 --last 3
  weir trace --vm 12 --json | jq '.[0].hosts'`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if last < 1 || last > 64 {
				return usageError(fmt.Errorf("--last %d: want 1 to 64", last))
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), policyTimeout)
			defer cancel()
			c, err := f.dial(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			number, err := numberOf(ctx, c, vm)
			if err != nil {
				return err
			}
			chains, warnings, err := traceOver(ctx, c, number, last)
			if err != nil {
				return err
			}
			for _, w := range warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), "weir: "+w)
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(chains)
			}
			return printChains(cmd.OutOrStdout(), chains, number)
		},
	}
	f.add(cmd.Flags(), []string{"tls://127.0.0.1:4222"})
	cmd.Flags().StringVar(&vm, "vm", "", "only decisions about this `VM`: its number, its name, or HOST/NAME")
	cmd.Flags().IntVar(&last, "last", 10, "so many decisions, at most 64")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// numberOf returns the number of a VM; 0 for none.
func numberOf(ctx context.Context, c *bus.Conn, name string) (law.VM, error) {
	if name == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(name, 10, 32); err == nil && n > 0 {
		return law.VM(n), nil
	}
	kv, err := store.Bus(ctx, c, 0)
	if err != nil {
		return 0, err
	}
	nodes, _, err := store.New(kv, store.Author{Identity: c.Identity().String()}).Inventory(ctx)
	if err != nil {
		return 0, err
	}
	found := map[law.VM]string{}
	for i := range nodes {
		if nodes[i].Host == nil {
			continue
		}
		for _, v := range nodes[i].Host.VMs {
			if whole := nodes[i].Name + "/" + v.Name; name == v.Name || name == whole {
				found[v.ID] = whole
			}
		}
	}
	switch len(found) {
	case 0:
		return 0, usageError(fmt.Errorf("--vm %s: no agent has reported a VM of this name; weir policy explain lists what they have", name))
	case 1:
		return slices.Collect(maps.Keys(found))[0], nil
	}
	return 0, usageError(fmt.Errorf("--vm %s: several VMs have this name: %s", name, strings.Join(slices.Sorted(maps.Values(found)), ", ")))
}

// traceOver asks all controllers, then the agents that their decisions went to. Those that do not answer are warned of.
func traceOver(ctx context.Context, c *bus.Conn, vm law.VM, last int) (out []chain, warnings []string, err error) {
	holders, err := c.Controllers(ctx)
	if err != nil {
		return nil, nil, err
	}
	if len(holders) == 0 {
		return nil, nil, errNoController
	}
	var names []string
	for _, h := range holders {
		names = append(names, h.Name)
	}
	out = []chain{}
	for _, a := range bus.AskAll[[]controller.Decision](ctx, c, identities(pki.Controller, names), &bus.Question{What: bus.AskTrace, VM: uint32(vm), Last: last}) {
		if a.Err != nil {
			warnings = append(warnings, a.Err.Error())
		}
		for _, d := range a.Answer {
			if slices.ContainsFunc(d.FirstOrders, func(o controller.TracedCommand) bool { return o.Result == "sent" }) || len(holders) == 1 {
				out = append(out, chain{Decision: d, Hosts: []traced{}})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b chain) int { return cmp.Compare(b.Unix, a.Unix) })
	out = out[:min(len(out), last)]
	byAgent := map[string][]uint64{}
	for i := range out {
		for _, o := range out[i].FirstOrders {
			if o.Result == "sent" {
				byAgent[o.Agent] = append(byAgent[o.Agent], out[i].Serial)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byAgent)) {
		var obeyed []agentd.Obeyed
		q := &bus.Question{What: bus.AskTrace, Of: byAgent[name], Last: 64}
		if err := c.Ask(ctx, pki.Identity{Role: pki.Agent, Name: name}, q, &obeyed); err != nil {
			warnings = append(warnings, err.Error())
			continue
		}
		for i := range out {
			out[i].add(name, obeyed)
		}
	}
	return out, warnings, nil
}

// add adds the commands of an agent that belong to the decision.
func (c *chain) add(agent string, all []agentd.Obeyed) {
	for _, o := range all {
		if o.Controller != c.Controller || o.Run != c.Run || o.Cause != c.Serial {
			continue
		}
		t := traced{Agent: agent, Obeyed: o}
		for _, sent := range c.FirstOrders {
			if sent.Agent == agent && o.EchoNs > 0 {
				t.RoundTripNs = max(o.CameNs-o.EchoNs-sent.HeldNs, 0)
			}
		}
		c.Hosts = append(c.Hosts, t)
	}
}

func printChains(w io.Writer, all []chain, vm law.VM) error {
	if len(all) == 0 {
		what := "no law has granted anything"
		if vm != 0 {
			what += fmt.Sprintf(" to VM %d", vm)
		}
		_, err := fmt.Fprintln(w, what+" since the controllers began")
		return err
	}
	for i := range slices.Backward(all) { // the newest last, as in a log
		if err := all[i].print(w); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, "Times are differences on one machine; +0 is the first line of a machine. Clocks of machines are not compared.")
	return err
}

func (c *chain) print(w io.Writer) error {
	fmt.Fprintf(w, "decision %d of controller %s, %s by its clock: law %s, %s\n", c.Serial, c.Controller,
		time.Unix(0, c.Unix).Format("15:04:05.000"), c.Law, grantCount(c.Grants))
	if c.Why != "" {
		fmt.Fprintf(w, "  why: %s\n", c.Why)
	}
	for _, g := range c.First[:min(len(c.First), 3)] {
		fmt.Fprintf(w, "  grant: %s\n", grantText(&g))
	}
	if n := c.Grants - min(len(c.First), 3); n > 0 {
		fmt.Fprintf(w, "  and %s more\n", grantCount(n))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(who string, at time.Duration, what string, a ...any) {
		fmt.Fprintf(t, "  %s\t+%s\t%s\n", who, at.Round(time.Microsecond), fmt.Sprintf(what, a...))
	}
	if c.Reporter != "" {
		row(c.Reporter, 0, "report %d of %s leaves, at %v of its clock", c.Sequence, c.Event, time.Duration(c.StampNs).Round(time.Microsecond))
	}
	zero := c.BeganNs
	if c.CameNs > 0 {
		zero = c.CameNs
		row(c.Controller, 0, "the report arrives")
	}
	row(c.Controller, c.BeganNs-zero, "the laws get it: event %d, %s", c.Serial, c.Event)
	row(c.Controller, c.DecidedNs-zero, "the laws have decided")
	for _, o := range c.FirstOrders {
		row(c.Controller, o.SentNs-zero, "%s for %s: %s (term %d)", grantCount(o.Grants), o.Agent, o.Result, o.Term)
	}
	if n := c.Commands - len(c.FirstOrders); n > 0 {
		fmt.Fprintf(t, "\t\tand %d more commands\n", n)
	}
	for i := range c.Hosts {
		h := &c.Hosts[i]
		trip := ""
		if h.RoundTripNs > 0 {
			trip = fmt.Sprintf(": %v on the bus, there and back", h.RoundTripNs.Round(time.Microsecond))
		}
		row(h.Agent, 0, "the command arrives%s", trip)
		row(h.Agent, h.SetNs-h.CameNs, "in the kernel: %s", grantCount(h.Grants))
		switch {
		case h.Watched == 0:
		case h.SeenNs > 0:
			row(h.Agent, h.SeenNs-h.CameNs, "an ACK of VM %d was limited; none at +%v", h.Watched, (h.UnseenNs - h.CameNs).Round(time.Microsecond))
		default:
			row(h.Agent, h.UnseenNs-h.CameNs, "no ACK of VM %d was limited yet", h.Watched)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

// grantCount is a number of grants.
func grantCount(n int) string {
	if n == 1 {
		return "1 grant"
	}
	return fmt.Sprintf("%d grants", n)
}

func grantText(g *controller.TracedGrant) string {
	to := fmt.Sprintf("VM %d", g.VM)
	if g.Peer != "" {
		to += " and " + g.Peer
	}
	if g.Lease == 0 {
		return fmt.Sprintf("%s of %s released", g.Kind, to)
	}
	return fmt.Sprintf("%s %d for %s, lease %v", g.Kind, g.Value, to, g.Lease)
}
