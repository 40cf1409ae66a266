package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/cmd/weir/laws"
	"weir/config"
	"weir/controller"
)

// controllerFlags are the flags of `weir controller`.
type controllerFlags struct {
	file          string
	check, schema bool
	asJSON        bool
	options       map[string]*string // by flag
}

// controllerOptions are the flags that set a key of the file: flag, key, help text.
var controllerOptions = []struct{ flag, key, usage string }{
	{"name", "name", "name of this controller, for 'weir controller status'"},
	{"listen", "listen", "`ADDRESS:PORT` that switches connect to (default 127.0.0.1:6653)"},
	{"ca", "tls.ca", "PEM `FILE`: switches must show a certificate signed by one of these"},
	{"certificate", "tls.certificate", "PEM `FILE` of the controller's own certificate"},
	{"key", "tls.key", "PEM `FILE` of its key"},
	{"generation", "generation", "`FILE` that stores the generation id"},
	{"poll", "poll", "how `often` the port counters of each switch are read; 0s: never (default 1s)"},
	{"metrics", "metrics.listen", "`ADDRESS:PORT` for Prometheus; an empty string: none (default 127.0.0.1:9188)"},
}

func controllerCommand() *cobra.Command {
	f := controllerFlags{options: map[string]*string{}}
	cmd := &cobra.Command{
		Use:   "controller [-f FILE]",
		Short: "Forward between OpenFlow switches: links, hosts, shortest paths",
		Long: `Control the OpenFlow 1.3 switches that connect: find the links between them, learn where
hosts are, and send frames over all shortest paths. Frames never loop, not even while switches change.

A switch must be Open vSwitch, with fail_mode=secure and no other flows in tables 0 to 3. The flows that Weir
installs carry its own cookie; it changes nothing else. When the controller ends or is killed,
switches continue to forward, and the next controller takes over their flows.

The switches connect over plain TCP, or TLS with certificates on both sides (--ca, --certificate, --key).`,
		Example: `  weir controller --listen 10.0.0.1:6653
  weir controller -f /etc/weir/controller.yaml
  weir controller status
  ovs-vsctl set-fail-mode br0 secure -- set-controller br0 tcp:10.0.0.1:6653`,
		Args: noSuchCommand,
		RunE: f.run,
	}
	f.add(cmd.Flags())
	cmd.AddCommand(controllerStatusCommand(), controllerPinCommand())
	return cmd
}

func (f *controllerFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.file, "file", "f", "", "read a `FILE` of kind: Controller instead of these options")
	flags.BoolVar(&f.check, "check", false, "check the configuration, and exit")
	flags.BoolVar(&f.schema, "schema", false, "print the JSON schema of kind: Controller")
	flags.BoolVar(&f.asJSON, "log-json", false, "log in JSON, one object per line")
	for _, o := range controllerOptions {
		f.options[o.flag] = flags.String(o.flag, "", o.usage)
	}
}

func (f *controllerFlags) run(cmd *cobra.Command, _ []string) error {
	if f.schema {
		_, err := cmd.OutOrStdout().Write(controller.Schema())
		return err
	}
	c, err := f.config(cmd.Flags())
	if err != nil {
		return usageError(err)
	}
	if f.check {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", cmp.Or(f.file, "options"))
		return err
	}
	c.Version, c.Log = weirVersion(), newLog(cmd.ErrOrStderr(), f.asJSON)
	c.Ready = func(net.Addr) {
		if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
			c.Log.Warn("cannot notify systemd", "error", err)
		}
	}
	return controller.Run(cmd.Context(), c)
}

func (f *controllerFlags) config(flags *pflag.FlagSet) (*controller.Config, error) {
	t := &config.Tree{Form: config.Mapping}
	t.Set("kind", &config.Tree{Value: "Controller"})
	for _, o := range controllerOptions {
		if !flags.Changed(o.flag) {
			continue
		}
		if f.file != "" {
			return nil, fmt.Errorf("-f and --%s exclude each other: set it in the file", o.flag)
		}
		given := *f.options[o.flag]
		at := config.Place{Option: strings.TrimSpace("--" + o.flag + " " + given)}
		if err := t.Put(o.key, &config.Tree{Value: given, At: at}); err != nil {
			return nil, err
		}
	}
	if f.file != "" {
		return controller.Load(f.file, laws.All().Specs())
	}
	return controller.FromOptions(t)
}

func controllerStatusCommand() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the running controller: switches, links, hosts, pinned flows",
		Long: `Show the state of the controller of this network namespace. The exit code is 0 if all its switches are
connected and have confirmed their state, otherwise 1.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := controller.ReadStatus(cmd.Context(), name, controller.Here)
			if err != nil {
				return err
			}
			if asJSON {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(s)
			} else {
				err = printController(cmd.OutOrStdout(), s)
			}
			if err == nil && !s.Well() {
				return &exitCode{code: exitError}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", "default", "name of the controller")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printController(w io.Writer, s *controller.Status) error {
	if s.Active != "" {
		_, err := fmt.Fprintf(w, "controller %s: up %d s; standby, %s is active\n", s.Name, s.UpSeconds, s.Active)
		return err
	}
	f := s.Forward
	fmt.Fprintf(w, "controller %s: generation %d, up %d s; %d switches, %d links, %d hosts, %d pinned flows; %s\n\n", s.Name, s.Generation,
		s.UpSeconds, len(f.Switches), len(f.Links), len(f.Hosts), len(f.Pins), map[bool]string{true: "settled", false: "not settled"}[f.Settled])
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "switch\tstate\tflows\tgroups\tlink\thost\tnew\tlost-link\tdown")
	for _, d := range f.Switches {
		state := "joined"
		if !d.Joined {
			state = "away"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", d.ID, state, d.Flows, d.Groups,
			d.Ports["link"], d.Ports["host"], d.Ports["new"], d.Ports["lost-link"], d.Ports["down"])
	}
	if len(f.Hosts) > 0 {
		fmt.Fprintln(t, "\nhost\tat\taddresses")
		for _, h := range f.Hosts {
			fmt.Fprintf(t, "%s\t%s\t%s\n", h.MAC, h.At, strings.Join(h.Addresses, " "))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if s.Bus != nil {
		if err := printAgents(w, s.Bus); err != nil {
			return err
		}
	}
	if s.Policies != nil {
		if err := printEnforced(w, s.Policies); err != nil {
			return err
		}
	}
	for _, p := range f.Pins {
		fmt.Fprintf(w, "pinned %s by %s\n", p.Flow, strings.Join(p.Path, " "))
	}
	if n := s.Core.OrdersRefused; n > 0 {
		fmt.Fprintf(w, "switches refused %d orders: see the log\n", n)
	}
	for _, law := range slices.Sorted(maps.Keys(s.Core.Grants)) {
		fmt.Fprintf(w, "law %s granted %d windows and rates, which are not enforced: the controller's file has no bus\n", law, s.Core.Grants[law])
	}
	for _, kind := range slices.Sorted(maps.Keys(s.Core.Unknown)) {
		fmt.Fprintf(w, "law %s: %d actions had no effect: this controller does not know their kind\n", kind, s.Core.Unknown[kind])
	}
	for id, why := range s.Refused {
		fmt.Fprintf(w, "not managed: %s: %s\n", id, printable(why))
	}
	return nil
}

// printAgents prints the agents that report over the bus, and what became of the grants for them.
func printAgents(w io.Writer, s *controller.BusStatus) error {
	state := "connected"
	if !s.Connected {
		state = "not connected: no agent is heard, and their limits end by themselves"
	}
	if s.Listens != "" {
		state += ", in this process at " + s.Listens
	}
	fmt.Fprintf(w, "\nbus: %s; %d agents\n", state, len(s.Agents))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(s.Agents) > 0 {
		fmt.Fprintln(t, "agent\tversion\tswitch\tports\thost\tVMs\theard\tcommanded by")
	}
	for _, a := range s.Agents {
		by := "another controller"
		if a.Commands {
			by = fmt.Sprintf("this one, term %d", a.Term)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%d ms ago\t%s\n", printable(a.Name), printable(a.Version), printable(a.Switch), a.Ports, a.Host, a.VMs, a.HeardMs, by)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, result := range slices.Sorted(maps.Keys(s.Grants)) {
		fmt.Fprintf(w, "grants %s: %d\n", result, s.Grants[result])
	}
	for _, counts := range []map[string]uint64{s.Dropped, s.NoEffect} {
		for _, reason := range slices.Sorted(maps.Keys(counts)) {
			if n := counts[reason]; n > 0 && reason != "replaced" {
				fmt.Fprintf(w, "messages of agents without effect, %s: %d\n", reason, n)
			}
		}
	}
	return nil
}

// printEnforced prints what this controller does for the policies: ports and VMs with a cap, and for each law the grants
// that live now, and how many were sent and not sent so far.
func printEnforced(w io.Writer, s *controller.PoliciesStatus) error {
	if s.Change == 0 {
		_, err := fmt.Fprintln(w, "\npolicies: none yet")
		return err
	}
	fmt.Fprintf(w, "\npolicies: as of change %d; %d VMs with a cap", s.Change, s.Caps)
	for _, agent := range slices.Sorted(maps.Keys(s.Plans)) {
		fmt.Fprintf(w, "; %s runs laws at %d ports", printable(agent), s.Plans[agent])
	}
	fmt.Fprintln(w)
	if len(s.Laws) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "law\tof flows\tports\tVMs\tlive\tsent\tobserved\tof other VMs")
	count := func(n int) string {
		if n < 0 {
			return "all"
		}
		return strconv.Itoa(n)
	}
	for _, l := range s.Laws {
		fmt.Fprintf(t, "%s\t%d %%\t%s\t%s\t%d\t%d\t%d\t%d\n", l.Law, l.Percent, count(l.Ports), count(l.VMs), l.Live, l.Passed, l.Observed, l.Other)
	}
	return t.Flush()
}

func controllerPinCommand() *cobra.Command {
	var name, proto string
	var q controller.PinRequest
	cmd := &cobra.Command{
		Use:   "pin SRC:PORT DST:PORT",
		Short: "Pin a flow and its acknowledgements to one path",
		Long: `Pin both directions of a flow to one path: the same links, in reverse. The path
ends when no packet was sent for the idle time.`,
		Example: "  weir controller pin 10.0.0.1:40000 10.0.0.9:80",
		Args:    usageArgs(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch proto {
			case "tcp":
				q.Proto = 6
			case "udp":
				q.Proto = 17
			default:
				return usageError(errors.New("--proto: use tcp or udp"))
			}
			q.Src, q.Dst = args[0], args[1]
			return controller.Pin(cmd.Context(), name, controller.Here, q)
		},
	}
	cmd.Flags().StringVar(&name, "name", "default", "name of the controller")
	cmd.Flags().StringVar(&proto, "proto", "tcp", "protocol: tcp or udp")
	cmd.Flags().Uint16Var(&q.IdleSeconds, "idle", 60, "`seconds` without a packet after which the path ends")
	cmd.Flags().BoolVar(&q.Drop, "drop", false, "remove the pinned path")
	return cmd
}
