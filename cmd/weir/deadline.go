package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/deadline"
	"weir/law"
)

// deadlineOptions are those of all its subcommands.
type deadlineOptions struct {
	socket string
	asJSON bool
}

func deadlineCommand() *cobra.Command {
	var o deadlineOptions
	cmd := &cobra.Command{
		Use:   "deadline",
		Short: "Declare to the agent of this host when a message must have arrived",
		Long: `Declare to the agent of this host when a message must have arrived. Laws that ask for deadlines use it.

A VM or container has a socket of its own, which says who asks: DIR/VM/deadline.sock, with DIR from the key
host.deadlines.sockets of the agent's file. A container mounts the directory DIR/VM. A VM asks at the addresses of
host.deadlines.metadata, and its port says who asks.`,
		Example: `  weir deadline declare 10.0.0.1:40000 10.0.0.9:80 --within 300ms --bytes 8MB
  weir deadline list --json
  weir deadline delete 1732650000000001`,
	}
	cmd.PersistentFlags().StringVar(&o.socket, "socket", "", "the agent's `SOCKET`, or http://ADDRESS (default: "+deadline.SocketVariable+", or "+deadline.DefaultSocket+", or "+deadline.MetadataAddress+")")
	cmd.PersistentFlags().BoolVar(&o.asJSON, "json", false, "print JSON")
	cmd.AddCommand(o.declareCommand(), o.listCommand(), o.deleteCommand())
	return cmd
}

func (o *deadlineOptions) declareCommand() *cobra.Command {
	var within time.Duration
	var size string
	var value uint32
	cmd := &cobra.Command{
		Use:   "declare SOURCE DESTINATION --within TIME",
		Short: "Declare a message that begins now on the connection from SOURCE to DESTINATION, ADDRESS:PORT each",
		Args:  usageArgs(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			what := deadline.Declaration{Within: within, Value: value}
			var err error
			if what.Source, err = netip.ParseAddrPort(args[0]); err == nil {
				what.Destination, err = netip.ParseAddrPort(args[1])
			}
			if err != nil {
				return usageError(fmt.Errorf("%w: ADDRESS:PORT is needed, such as 10.0.0.1:40000", err))
			}
			if size != "" {
				var b law.Bytes
				if err := json.Unmarshal([]byte(strconv.Quote(size)), &b); err != nil {
					return usageError(fmt.Errorf("--bytes: %w", err))
				}
				what.Bytes = uint64(b)
			}
			if within <= 0 {
				return usageError(fmt.Errorf("--within %v: want more than 0, such as 300ms", within))
			}
			c := deadline.New(o.socket)
			defer c.Close()
			id, err := c.Declare(cmd.Context(), what)
			if err != nil {
				return err
			}
			if o.asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(deadline.Declared{ID: id, Declaration: what})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), id)
			return err
		},
	}
	cmd.Flags().DurationVar(&within, "within", 0, "`TIME` until the last byte must have arrived")
	cmd.Flags().StringVar(&size, "bytes", "", "`SIZE` of the message, such as 8MB (default: not known)")
	cmd.Flags().Uint32Var(&value, "value", 0, "what the message is worth if not all can be in time, 1 to 100 (default 1)")
	return cmd
}

func (o *deadlineOptions) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the deadlines that are ahead",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := deadline.New(o.socket)
			defer c.Close()
			l, err := c.List(cmd.Context())
			if err != nil {
				return err
			}
			if o.asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(l)
			}
			return printDeadlines(cmd.OutOrStdout(), l)
		},
	}
}

func (o *deadlineOptions) deleteCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "delete ID",
		Short: "Take a declaration back",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil {
				return usageError(fmt.Errorf("ID %q: a whole number is needed, as list prints it", args[0]))
			}
			c := deadline.New(o.socket)
			defer c.Close()
			return c.Delete(cmd.Context(), id)
		},
	}
}

func printDeadlines(to io.Writer, l *deadline.List) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	if len(l.Deadlines) > 0 {
		_, _ = fmt.Fprintln(w, "id\tsource\tdestination\tleft\tbytes\tvalue") // Flush reports it
	}
	for _, d := range l.Deadlines {
		size := "not known"
		if d.Bytes > 0 {
			size = law.Bytes(d.Bytes).String()
		}
		_, _ = fmt.Fprintf(w, "%d\t%v\t%v\t%v\t%s\t%d\n", d.ID, d.Source, d.Destination, d.Within.Round(time.Millisecond), size, max(d.Value, 1))
	}
	for _, why := range slices.Sorted(maps.Keys(l.Refused)) {
		_, _ = fmt.Fprintf(w, "refused, %s: %d\n", why, l.Refused[why])
	}
	return w.Flush()
}
