package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"weir/agent/metrics"
	"weir/bus"
	"weir/bus/pki"
)

const busDir = "/etc/weir/bus"

func busCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bus",
		Short: "The message bus: certificates, server files, a server",
		Long: `Make the certificates with which agents, controllers and servers of the bus know each other, and
the configuration of an external NATS server. The directory of the CA stays on one machine, and
only root reads it.`,
		Example: `  weir bus ca
  weir bus enrol bus/b1 --address 10.0.0.5 --out b1
  weir bus enrol agent/sw1 --out sw1
  weir bus revoke agent/sw1`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	ca := &pki.CA{}
	cmd.PersistentFlags().StringVar(&ca.Dir, "dir", busDir, "`DIRECTORY` of the CA")
	cmd.AddCommand(busCACommand(ca), busEnrolCommand(ca), busRevokeCommand(ca), busListCommand(ca), busConfigCommand(ca), busServeCommand())
	return cmd
}

func busServeCommand() *cobra.Command {
	var cfg bus.ServerConfig
	var keys, listen string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "serve --listen ADDRESS:PORT",
		Short: "Run one server of the bus",
		Long: `Run a server of the bus until it is stopped, with the certificate of bus/NAME from 'weir bus enrol'.
One is enough for workers (see 'weir worker --help'); for a cluster, see 'weir bus config'.`,
		Example: `  weir bus enrol bus/b1 --address 10.0.0.5 --out b1
  weir bus serve --listen 10.0.0.5:4222 --keys b1 --store /var/lib/weir/bus`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Listen == "" {
				return usageError(errors.New("serve needs --listen ADDRESS:PORT"))
			}
			var err error
			if cfg.Files, err = pki.Find(keys); err != nil {
				return usageError(fmt.Errorf("--keys: %w", err))
			}
			cfg.Log = newLog(cmd.ErrOrStderr(), asJSON)
			s, err := bus.StartServer(cfg)
			if err != nil {
				return err
			}
			defer s.Close()
			registry := prometheus.NewPedanticRegistry()
			registry.MustRegister(s)
			m := metrics.New(metrics.Source{Gather: registry, Log: cfg.Log})
			if err := m.Listen(listen, false); err != nil {
				return err
			}
			defer m.Close()
			cfg.Log.Info("the bus listens", "url", s.URL(), "store", cfg.Store)
			<-cmd.Context().Done()
			return nil
		},
	}
	cmd.Flags().StringVar(&cfg.Listen, "listen", "", "`ADDRESS:PORT` for clients")
	cmd.Flags().StringVar(&cfg.Store, "store", "/var/lib/weir/bus", "`DIRECTORY` of the key-value stores and of work")
	cmd.Flags().StringVar(&listen, "metrics", "", "`ADDRESS:PORT` for Prometheus, such as 127.0.0.1:9190 (default: none)")
	addKeys(cmd.Flags(), &keys, "")
	cmd.Flags().BoolVar(&asJSON, "log-json", false, "log in JSON, one object per line")
	return cmd
}

func busCACommand(ca *pki.CA) *cobra.Command {
	var rotate, retire bool
	cmd := &cobra.Command{
		Use:   "ca [--rotate | --retire]",
		Short: "Make the CA, or replace its key",
		Long: `Make the CA of the bus. With --rotate it gets a new key, and ca.pem has the new and the old
certificate: copy ca.pem to all machines, enrol them again, and end with --retire.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			switch {
			case rotate && retire:
				return usageError(fmt.Errorf("--rotate and --retire exclude each other: enrol the machines between them"))
			case rotate:
				err = ca.Rotate()
			case retire:
				err = ca.Retire()
			default:
				err = ca.Create()
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", filepath.Join(ca.Dir, "ca.pem"))
			return err
		},
	}
	cmd.Flags().BoolVar(&rotate, "rotate", false, "make a new key, and trust both")
	cmd.Flags().BoolVar(&retire, "retire", false, "trust the newest only")
	return cmd
}

func busEnrolCommand(ca *pki.CA) *cobra.Command {
	var out string
	var addresses []string
	var days int
	cmd := &cobra.Command{
		Use:   "enrol agent/NAME|controller/NAME|observer/NAME|worker/NAME|operator/NAME|bus/NAME",
		Short: "Make a key and a certificate",
		Long: `Make a key and a certificate, and write them with the trusted CAs to a directory: NAME.pem, ca.pem
and revoked, of mode 0600. Copy it to the machine. A process that runs reads changed files within
two seconds.`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := pki.ParseIdentity(args[0])
			if err != nil {
				return usageError(err)
			}
			if days < 1 || days > 3650 {
				return usageError(fmt.Errorf("--days %d: want 1 to 3650", days))
			}
			if out == "" {
				out = id.Name
			}
			issued, err := ca.Enrol(id, out, addresses, time.Duration(days)*24*time.Hour)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: serial number %s, until %s, in %s\n",
				issued.Identity, issued.Serial, issued.NotAfter.UTC().Format(time.RFC3339), out)
			return err
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "write to this `DIRECTORY` (default: NAME)")
	cmd.Flags().StringSliceVar(&addresses, "address", nil, "`ADDRESS` or DNS name of a server of the bus; repeat it for more")
	cmd.Flags().IntVar(&days, "days", 90, "`DAYS` until the certificate expires")
	return cmd
}

func busRevokeCommand(ca *pki.CA) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke IDENTITY|SERIAL",
		Short: "Revoke certificates",
		Long: `Revoke all certificates of an identity, or one by its serial number. Copy the file revoked of the
CA's directory to the servers of the bus: they end such connections. For an external cluster make
its configuration again, too.`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := ca.Revoke(args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d revoked; copy %s to the servers of the bus\n", n, filepath.Join(ca.Dir, "revoked"))
			return err
		},
	}
}

func busListCommand(ca *pki.CA) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the certificates that have not expired",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := ca.Issued()
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "IDENTITY\tSERIAL\tUNTIL\tSTATE")
			for _, i := range list {
				state := "valid"
				if i.Revoked {
					state = "revoked"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", i.Identity, i.Serial, i.NotAfter.UTC().Format(time.RFC3339), state)
			}
			return w.Flush()
		},
	}
}

func busConfigCommand(ca *pki.CA) *cobra.Command {
	var e bus.External
	var files, out string
	cmd := &cobra.Command{
		Use:   "config NAME --listen ADDRESS:PORT --files DIRECTORY --store DIRECTORY",
		Short: "Write the configuration of an external NATS server",
		Long: `Write the configuration of nats-server 2.11 or later, for the server that is enrolled as bus/NAME. It
lists every identity with a valid certificate and what that may send and read. Make it again after
each enrolment and revocation, and run: nats-server --signal reload`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := pki.ParseIdentity("bus/" + args[0])
			if err != nil {
				return usageError(err)
			}
			if e.Clients, err = ca.Valid(); err != nil {
				return err
			}
			e.Name, e.Files = id.Name, pki.In(files, id.Name)
			text, err := e.ServerFile()
			if err != nil {
				return usageError(err)
			}
			if out == "" {
				_, err = fmt.Fprint(cmd.OutOrStdout(), text)
				return err
			}
			return os.WriteFile(out, []byte(text), 0o600)
		},
	}
	cmd.Flags().StringVar(&e.Listen, "listen", "", "`ADDRESS:PORT` for clients")
	cmd.Flags().StringVar(&e.Cluster, "cluster", "", "`ADDRESS:PORT` for the other servers of the cluster")
	cmd.Flags().StringSliceVar(&e.Routes, "route", nil, "`ADDRESS:PORT` of another server; repeat it for more")
	cmd.Flags().StringVar(&e.Store, "store", "/var/lib/weir/bus", "`DIRECTORY` of the key-value stores")
	cmd.Flags().StringVar(&files, "files", busDir, "`DIRECTORY` of the server's certificates on its machine")
	cmd.Flags().StringVar(&out, "out", "", "write to this `FILE`")
	return cmd
}
