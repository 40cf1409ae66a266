package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"weir/law"
	"weir/openflow"
	"weir/openflow/channel"
)

// messagePrinter prints the asynchronous messages of a switch.
type messagePrinter struct {
	channel.Ignore
	mu     sync.Mutex
	w      io.Writer
	asJSON bool
	left   int // messages left to print; below 0: any number
	full   chan struct{}
	err    error // of writing
}

func (f *openflowFlags) watchCommand() *cobra.Command {
	var long law.Duration
	count := 0
	cmd := &cobra.Command{
		Use:   "watch SWITCH",
		Short: "Print the asynchronous messages of a switch: packet-ins, changed ports, ended flows",
		Long: openflowTarget + `

Each message is one line. The command ends with an interrupt, --for or --count. It enables all kinds of messages on its
own connection; the switch's controllers continue to get theirs.`,
		Example: "  weir openflow watch unix:/var/run/openvswitch/br0.mgmt --for 10s\n  weir openflow watch listen::6653 --count 100 --json",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if count < 0 || long < 0 {
				return usageError(errors.New("--count and --for must not be negative"))
			}
			return f.watch(cmd, args[0], long.Std(), count)
		},
	}
	cmd.Flags().TextVar(&long, "for", law.Duration(0), "how long to watch (default until an interrupt)")
	cmd.Flags().IntVar(&count, "count", 0, "end after this many messages (default any number)")
	return cmd
}

func (f *openflowFlags) watch(cmd *cobra.Command, target string, long time.Duration, count int) error {
	w := &messagePrinter{w: cmd.OutOrStdout(), asJSON: f.asJSON, left: count, full: make(chan struct{})}
	if count == 0 {
		w.left = -1
	}
	c, err := f.connect(cmd, target, w)
	if err != nil {
		return err
	}
	defer c.Close()
	all := [2]uint32{^uint32(0), 0} // the role EQUAL; this connection is never SLAVE
	if _, err := c.Send(&openflow.SetAsync{Masks: openflow.AsyncMasks{PacketIn: all, PortStatus: all, FlowRemoved: all}}); err != nil {
		return err
	}
	ctx := cmd.Context()
	if long > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, long)
		defer cancel()
	}
	select {
	case <-ctx.Done():
	case <-w.full:
	case <-c.Done():
		return c.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// PacketIn prints a packet-in.
func (w *messagePrinter) PacketIn(_ *channel.Conn, in *openflow.PacketIn) {
	w.print(openflow.Header{Version: openflow.Version13, Type: openflow.TypePacketIn}, in)
}

// Message prints another message.
func (w *messagePrinter) Message(_ *channel.Conn, h openflow.Header, m openflow.Message) {
	w.print(h, m)
}

func (w *messagePrinter) print(h openflow.Header, m openflow.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left == 0 || w.err != nil {
		return
	}
	if err := w.line(time.Now(), h, m); err != nil {
		w.err = err
		close(w.full)
		return
	}
	if w.left--; w.left == 0 {
		close(w.full)
	}
}

func (w *messagePrinter) line(now time.Time, h openflow.Header, m openflow.Message) error {
	if !w.asJSON {
		_, err := fmt.Fprintf(w.w, "%s %s\n", now.Format("15:04:05.000000"), openflow.Text(h, m))
		return err
	}
	message, err := openflow.JSON(h, m)
	if err != nil {
		return err
	}
	return json.NewEncoder(w.w).Encode(struct {
		Time    time.Time       `json:"time"`
		Message json.RawMessage `json:"message"`
	}{now, message})
}
