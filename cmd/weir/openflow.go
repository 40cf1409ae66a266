package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/law"
	"weir/openflow"
	"weir/openflow/channel"
)

const openflowTarget = `SWITCH is the address of the switch:
  HOST:PORT           the switch listens there for OpenFlow (ovs-vsctl set-controller BR ptcp:6654)
  unix:PATH           Open vSwitch listens there, at RUNDIR/BRIDGE.mgmt
  listen:[HOST]:PORT  wait until the switch connects to this address

With --ca, --certificate and --key the connection is TLS, with certificates on both sides. The switch must speak OpenFlow
1.3 (ovs-vsctl set bridge BR protocols=OpenFlow13). Nothing on the switch is changed.`

// openflowFlags are the flags of the connection to a switch.
type openflowFlags struct {
	files  channel.Certificates
	name   string
	within law.Duration
	asJSON bool
}

func openflowCommand() *cobra.Command {
	f := openflowFlags{within: law.Duration(10 * time.Second)}
	cmd := &cobra.Command{
		Use:   "openflow",
		Short: "Read a switch by OpenFlow 1.3: its description, ports, flows and messages",
		Long:  "Read one switch by OpenFlow 1.3, as a second controller in addition to its own.\n\n" + openflowTarget,
		Args:  noSuchCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.files.CA, "ca", "", "TLS: PEM file of the CA certificates for the switch")
	flags.StringVar(&f.files.Certificate, "certificate", "", "TLS: PEM file of our certificate")
	flags.StringVar(&f.files.Key, "key", "", "TLS: PEM file of our key")
	flags.StringVar(&f.name, "tls-name", "", "TLS: name in the switch's certificate")
	flags.TextVar(&f.within, "within", f.within, "how long to wait for the switch and for each answer")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	cmd.AddCommand(f.dumpCommand(), f.flowsCommand(), f.portsCommand(), f.watchCommand())
	return cmd
}

func (f *openflowFlags) dumpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "dump SWITCH",
		Short:   "Print the whole state of a switch: description, ports, tables, groups, meters, flows",
		Long:    openflowTarget,
		Example: "  weir openflow dump unix:/var/run/openvswitch/br0.mgmt\n  weir openflow dump 192.0.2.7:6654 --json",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.ask(cmd, args[0], func(ctx context.Context, c *channel.Conn) error {
				d, err := dumpSwitch(ctx, c)
				return errors.Join(f.print(cmd.OutOrStdout(), d, d.text), err)
			})
		},
	}
}

func (f *openflowFlags) flowsCommand() *cobra.Command {
	var table uint8
	var cookie string
	cmd := &cobra.Command{
		Use:     "flows SWITCH",
		Short:   "Print the flow entries of a switch with their counters",
		Long:    openflowTarget,
		Example: "  weir openflow flows 192.0.2.7:6654 --table 0\n  weir openflow flows unix:/run/openvswitch/br0.mgmt --cookie 0x57/0xff",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ask := openflow.FlowStatsRequest{TableID: openflow.TableID(table), OutPort: openflow.PortAny, OutGroup: openflow.GroupAny}
			var err error
			if ask.Cookie, ask.CookieMask, err = parseCookie(cookie); err != nil {
				return usageError(err)
			}
			return f.ask(cmd, args[0], func(ctx context.Context, c *channel.Conn) error {
				flows, err := gather[openflow.FlowStatsReply](ctx, c, ask)
				if err != nil {
					return err
				}
				return f.print(cmd.OutOrStdout(), flows, func(w io.Writer) { flowsText(w, flows) })
			})
		},
	}
	cmd.Flags().Uint8Var(&table, "table", uint8(openflow.TableAll), "only flows of this table (default all)")
	cmd.Flags().StringVar(&cookie, "cookie", "", "COOKIE[/MASK]: only flows whose cookie has these bits")
	return cmd
}

func (f *openflowFlags) portsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "ports SWITCH",
		Short:   "Print the ports of a switch with their counters",
		Long:    openflowTarget,
		Example: "  weir openflow ports listen::6653",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.ask(cmd, args[0], func(ctx context.Context, c *channel.Conn) error {
				ports, err := portsOf(ctx, c)
				if err != nil {
					return err
				}
				return f.print(cmd.OutOrStdout(), ports, func(w io.Writer) { portsText(w, ports) })
			})
		},
	}
}

// ask connects, calls do, and closes. Each answer has its own time limit, and so has the connection.
func (f *openflowFlags) ask(cmd *cobra.Command, target string, do func(context.Context, *channel.Conn) error) error {
	c, err := f.connect(cmd, target, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	return do(cmd.Context(), c)
}

// connect connects to the switch, or waits for it.
func (f *openflowFlags) connect(cmd *cobra.Command, target string, h channel.Handler) (*channel.Conn, error) {
	network, address := "tcp", target
	if path, ok := strings.CutPrefix(target, "unix:"); ok {
		network, address = "unix", path
	}
	here, listens := strings.CutPrefix(target, "listen:")
	config := channel.Config{Handler: h, Limits: channel.Limits{RequestTimeout: f.within.Std(), HandshakeTimeout: f.within.Std()}}
	var err error
	if config.TLS, err = f.tls(listens); err != nil {
		return nil, usageError(err)
	}
	if listens {
		return f.accept(cmd, here, config)
	}
	if _, _, err := net.SplitHostPort(address); network == "tcp" && err != nil {
		return nil, usageError(fmt.Errorf("switch %q is not HOST:PORT, unix:PATH or listen:[HOST]:PORT: %w", target, err))
	}
	c, err := channel.Dial(cmd.Context(), network, address, config)
	if err != nil {
		return nil, fmt.Errorf("%w; check that it listens for OpenFlow 1.3 there", err)
	}
	return c, nil
}

func (f *openflowFlags) tls(listens bool) (*tls.Config, error) {
	if f.files == (channel.Certificates{}) {
		if f.name != "" {
			return nil, errors.New("--tls-name needs TLS: set --ca, --certificate and --key, too")
		}
		return nil, nil
	}
	if f.files.CA == "" || f.files.Certificate == "" || f.files.Key == "" {
		return nil, errors.New("TLS needs --ca, --certificate and --key, because both sides have a certificate")
	}
	if listens {
		return channel.ServerTLS(f.files, nil)
	}
	return channel.ClientTLS(f.files, f.name)
}

// first passes on the first switch that connects, and refuses the others.
type first struct {
	channel.Handler
	came chan *channel.Conn
}

func (w first) Up(c *channel.Conn) {
	select {
	case w.came <- c:
		w.Handler.Up(c)
	default:
		c.Close()
	}
}

// accept waits for a switch. The connection ends with the context.
func (f *openflowFlags) accept(cmd *cobra.Command, address string, config channel.Config) (*channel.Conn, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	if config.Handler == nil {
		config.Handler = channel.Ignore{}
	}
	w := first{config.Handler, make(chan *channel.Conn, 1)}
	config.Handler = w
	server, err := channel.NewServer(config)
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "waiting for a switch at %s\n", listener.Addr())
	serving, stop := context.WithCancel(cmd.Context())
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(serving, listener) }()
	timer := time.NewTimer(f.within.Std())
	defer timer.Stop()
	select {
	case c := <-w.came:
		go func() { <-c.Done(); stop() }()
		return c, nil
	case err := <-failed:
		stop()
		return nil, errors.Join(err, cmd.Context().Err())
	case <-timer.C:
		stop()
		return nil, fmt.Errorf("no switch connected to %s within %v; let it connect with: ovs-vsctl set-controller BRIDGE tcp:ADDRESS", listener.Addr(), f.within)
	}
}

func (f *openflowFlags) print(w io.Writer, v any, text func(io.Writer)) error {
	if !f.asJSON {
		text(w)
		return nil
	}
	return json.NewEncoder(w).Encode(v)
}
