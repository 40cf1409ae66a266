package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/agent/switchd"
	"weir/cmd/weir/laws"
	"weir/config"
)

// switchFlags are what `weir switch` takes beside ports.
type switchFlags struct {
	file          string
	check, schema bool
	newest        bool
	asJSON        bool
	scope         []string
	name          string
	options       switchd.Options
}

func switchCommand() *cobra.Command {
	var f switchFlags
	law := laws.Switch().Law().Title()
	cmd := &cobra.Command{
		Use:   "switch PORT... | -f FILE",
		Short: "Keep the queues of this switch's ports short (" + law + ")",
		Long: "Put " + law + ` on ports of this switch and keep it there until interrupted. PORT is the name of a
device in this network namespace, or a pattern ('swp*'); what else there is to say stands in flags, or
with the ports in a file (-f). A PORT that is not there at the start is refused, unless --wait; one of a
file is waited for. A port that is deleted and made again, or comes later, is attached as soon as it is there.

Name every port that traffic passes: the window of a flow is written into the acknowledgements that
leave by another port than its data. Every port needs a queue of its own whose length can be read, a
tbf or htb; rate and buffer are read from it.

SIGHUP and 'weir switch reload' read the file again: a change is applied whole, or refused whole.

At SIGTERM or an interrupt the windows are let go, within a second, and the law is taken off. Tables stay
pinned in /sys/fs/bpf/weir/switch/NAME for the next start. A process that is killed leaves it in place: after a
second it lets the windows go by itself, and the next start takes it over.`,
		Example: `  weir switch 'swp*'
  weir switch eth1 eth2 --rate 10Gbit --buffer 1MB
  weir switch -f /etc/weir/switch.yaml
  weir switch --check -f FILE       # say what is wrong with it, touch nothing
  weir switch --newest -f FILE      # print it as this version of Weir would have it
  weir switch 'swp*' --take-over    # upgrade in place
  weir switch --purge               # remove what a killed one left`,
		Args: usageArgs(cobra.ArbitraryArgs),
		RunE: f.run,
	}
	f.add(cmd.Flags())
	cmd.AddCommand(reloadCommand())
	return cmd
}

func reloadCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have the running switch read its file again",
		Long: `Have the running switch of this network namespace read its file again. The file is checked whole, and
applied whole or not at all; what has changed, or why nothing has, is printed. No packet is lost by
it, and no connection breaks.

The exit code is 0 when the file was applied, 1 when it was refused or nobody answers.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := laws.Switch().Reload(name)
			switch {
			case err != nil:
				return err
			case a.Refused != "":
				return fmt.Errorf("refused, nothing has changed:\n%s", a.Refused)
			}
			out := "applied, nothing was new"
			if len(a.Changes) > 0 {
				out = "applied:\n  " + strings.Join(a.Changes, "\n  ")
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), out)
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", switchd.DefaultName, "name of the switch")
	return cmd
}

// fileFlags are the flags that stand for keys of a file: those of any law, then the law's own.
func fileFlags() []switchd.Flag {
	return append([]switchd.Flag{
		{Name: "rate", Key: "defaults.rate", Observe: true, Help: "rate of the ports, e.g. 10Gbit (default that of the port's tbf or htb)"},
		{Name: "buffer", Key: "defaults.buffer", Observe: true, Help: "buffer of the ports, e.g. 1MB (default that of the port's tbf or htb)"},
		{Name: "shape", Key: "defaults.shape", Help: "give the ports a tbf of this rate meanwhile, where the kernel's default queue discipline stands"},
		{Name: "rtt", Key: "defaults.rtt", Default: "250us", Observe: true, Help: "round trip of flows when nothing queues: limits a flow's window"},
		{Name: "mark", Key: "defaults.mark.threshold", Help: "mark ECT packets that find more than this in the queue, e.g. 200KB (default: do not)"},
		{Name: "metrics", Key: "metrics.listen", Default: "127.0.0.1:9187", Help: "address and port to serve figures on; '': none"},
	}, laws.Switch().Law().Flags()...)
}

func (f *switchFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.file, "file", "f", "", "read the configuration from FILE")
	flags.BoolVar(&f.check, "check", false, "say what is wrong with the configuration, and touch nothing")
	flags.BoolVar(&f.schema, "schema", false, "print the JSON schema of the file")
	flags.BoolVar(&f.newest, "newest", false, "print the file of -f in the newest version of its keys")
	flags.StringVar(&f.name, "name", switchd.DefaultName, "name of the switch, where a machine has several")
	for _, l := range fileFlags() {
		flags.String(l.Name, l.Default, l.Help)
	}
	flags.StringArrayVar(&f.scope, "scope", nil, "manage only flows with both ends in these PREFIXes (repeatable; default all)")
	flags.BoolVar(&f.options.Purge, "purge", false, "leave nothing pinned at the end; without PORT: remove what is pinned now")
	flags.BoolVar(&f.options.TakeOver, "take-over", false, "take over from the process that runs under this name")
	flags.BoolVar(&f.options.Wait, "wait", false, "wait for ports that are not there yet (with -f they are waited for)")
	flags.BoolVar(&f.options.Renew, "renew", false, "replace pinned tables that another version of Weir left; flows are adopted")
	flags.BoolVar(&f.asJSON, "json", false, "log in JSON, a line each")
}

func (f *switchFlags) run(cmd *cobra.Command, args []string) error {
	switch {
	case f.schema:
		_, err := cmd.OutOrStdout().Write(laws.Switch().Schema())
		return err
	case f.newest:
		return f.printNewest(cmd.OutOrStdout())
	case len(args) == 0 && f.file == "" && f.options.Purge && !f.check:
		if err := switchd.CheckName(f.name); err != nil {
			return usageError(err)
		}
		return purge(cmd.OutOrStdout(), f.name)
	}
	c, err := f.config(cmd, args)
	if err != nil {
		return usageError(err)
	}
	if f.check {
		warnOld(cmd.ErrOrStderr(), c)
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", cmp.Or(f.file, "options"))
		return err
	}
	if c.File != "" {
		f.options.Hangup = hangups()
	}
	if err := needRights("weir switch"); err != nil {
		return err
	}
	c.Options = f.options
	c.Version, c.Log = weirVersion(), newLog(cmd.ErrOrStderr(), f.asJSON)
	return switchd.Run(cmd.Context(), c)
}

// printNewest prints the file in the newest version of its keys.
func (f *switchFlags) printNewest(w io.Writer) error {
	if f.file == "" {
		return usageError(errors.New("--newest prints a file: give it with -f"))
	}
	text, err := laws.Switch().Newest(f.file)
	if err != nil {
		return usageError(err)
	}
	_, err = w.Write(text)
	return err
}

// warnOld says of a file of an earlier version what to write instead.
func warnOld(w io.Writer, c *switchd.Config) {
	if c.Warning != "" {
		fmt.Fprintln(w, "weir: warning: "+c.Warning)
	}
}

// purge removes a switch, and says which others are left.
func purge(w io.Writer, name string) error {
	if err := needRights("weir switch --purge"); err != nil {
		return err
	}
	before, err := switchd.SwitchNames()
	if err != nil {
		return err
	}
	if err := laws.Switch().Purge(name); err != nil {
		return err
	}
	left, err := switchd.SwitchNames()
	if err != nil {
		return err
	}
	text := "switch " + name + ": nothing of it was pinned"
	if slices.Contains(before, name) {
		text = "removed switch " + name
	}
	for _, other := range left {
		text += fmt.Sprintf("\nleft: switch %s; weir switch --purge --name %s removes it", other, other)
	}
	_, err = fmt.Fprintln(w, text)
	return err
}

// hangups gives the signals that ask for a reload. Without a file they end the process, as they do others.
func hangups() <-chan os.Signal {
	c := make(chan os.Signal, 1) // one that comes during a reload is answered by another
	signal.Reset(syscall.SIGHUP)
	signal.Notify(c, syscall.SIGHUP)
	return c
}

// config is that of the file, or of what stands in its place on the command line.
func (f *switchFlags) config(cmd *cobra.Command, args []string) (*switchd.Config, error) {
	if f.file == "" {
		if len(args) == 0 {
			return nil, fmt.Errorf("no ports: name at least one, or give a file with -f (see '%s --help')", cmd.CommandPath())
		}
		t, err := f.tree(cmd.Flags(), args)
		if err != nil {
			return nil, err
		}
		return laws.Switch().FromOptions(t)
	}
	if len(args) > 0 {
		return nil, errors.New("-f and PORT do not go together: name the ports in the file")
	}
	for _, name := range f.inFile() {
		if cmd.Flags().Changed(name) {
			return nil, fmt.Errorf("-f and --%s do not go together: say it in the file", name)
		}
	}
	return laws.Switch().Load(f.file)
}

// inFile lists the flags whose place is in the file, when there is one.
func (f *switchFlags) inFile() []string {
	names := []string{"name", "scope"}
	for _, l := range fileFlags() {
		names = append(names, l.Name)
	}
	return names
}

// tree is what a file would hold, each value labelled with the flag that it came from.
func (f *switchFlags) tree(flags *pflag.FlagSet, args []string) (*config.Tree, error) {
	text := func(option, s string) *config.Tree { return &config.Tree{Value: s, At: config.Place{Option: option}} }
	list := func(option string, all []string) *config.Tree {
		t := &config.Tree{Form: config.Sequence}
		for _, s := range all {
			t.Items = append(t.Items, text(option+s, s))
		}
		return t
	}
	port := &config.Tree{Form: config.Mapping}
	port.Set("match", list("port ", args))
	t := &config.Tree{Form: config.Mapping}
	t.Set("kind", text("", "Switch"))
	t.Set("version", &config.Tree{Value: int64(switchd.FileVersion)})
	t.Set("name", text("--name "+f.name, f.name))
	t.Set("ports", &config.Tree{Form: config.Sequence, Items: []*config.Tree{port}})
	if len(f.scope) > 0 {
		t.Set("scope", list("--scope ", f.scope))
	}
	for _, l := range fileFlags() {
		if !flags.Changed(l.Name) {
			continue
		}
		given := flags.Lookup(l.Name).Value.String()
		option := strings.TrimSpace("--" + l.Name + " " + given)
		value := text(option, given)
		if l.Number {
			var err error
			if value, err = config.ParseOption(option, given); err != nil {
				return nil, err
			}
		}
		if err := t.Put(l.Key, value); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func newLog(w io.Writer, asJSON bool) *slog.Logger {
	if asJSON {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}
