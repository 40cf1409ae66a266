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

// switchFlags are the flags of `weir switch`.
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
	law := laws.Switch().Title()
	cmd := &cobra.Command{
		Use:   "switch PORT... | -f FILE",
		Short: "Keep the queues of this switch's ports short (" + law + ")",
		Long: "Attach " + law + ` to ports of this switch, and keep it attached until interrupted. PORT is the name of a
device in this network namespace, or a pattern ('swp*'). The other settings are flags, or keys of a file (-f)
that has the ports, too. A PORT that does not exist at the start is refused, unless --wait is set; a port of a
file is waited for. A port that is deleted and made again, or appears later, is attached as soon as it exists.

Name every port that traffic passes: the window of a flow is written into its acknowledgements, which
leave by another port than its data. Every port needs a queue of its own with a length that can be read: a
tbf or htb. Rate and buffer are read from it.

SIGHUP and 'weir switch reload' read the file again: a change is applied completely, or refused.

On SIGTERM or an interrupt the windows are released within a second, and the law is detached. Tables stay
pinned in /sys/fs/bpf/weir/switch/NAME for the next start. If the process is killed, the kernel program stays:
after a second without heartbeat it releases the windows by itself, and the next start takes it over.`,
		Example: `  weir switch 'swp*'
  weir switch eth1 eth2 --rate 10Gbit --buffer 1MB
  weir switch -f /etc/weir/switch.yaml
  weir switch --check -f FILE       # check it, change nothing
  weir switch --newest -f FILE      # print it with the newest keys
  weir switch 'swp*' --take-over    # upgrade in place
  weir switch --purge               # remove what a killed process left`,
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
		Short: "Make the running switch read its file again",
		Long: `Make the running switch of this network namespace read its file again. The file is checked, and
applied completely or not at all. The changes, or the reason for the refusal, are printed. No packet is lost,
and no connection breaks.

The exit code is 0 if the file was applied, 1 if it was refused or no switch answers.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := laws.Switch().Reload(name)
			if err != nil {
				return err
			}
			return printAnswer(cmd.OutOrStdout(), a)
		},
	}
	cmd.Flags().StringVar(&name, "name", switchd.DefaultName, "name of the switch")
	return cmd
}

// printAnswer prints what a reload changed, or returns why it was refused.
func printAnswer(w io.Writer, a *switchd.Answer) error {
	if a.Refused != "" {
		return fmt.Errorf("refused, nothing has changed:\n%s", a.Refused)
	}
	out := "applied, nothing changed"
	if len(a.Changes) > 0 {
		out = "applied:\n  " + strings.Join(a.Changes, "\n  ")
	}
	_, err := fmt.Fprintln(w, out)
	return err
}

// fileFlags are the flags that set a key of the file: those of every law, then the law's own.
func fileFlags() []switchd.Flag {
	return append([]switchd.Flag{
		{Name: "rate", Key: "defaults.rate", Observe: true, Help: "rate of the ports, e.g. 10Gbit (default: that of the port's tbf or htb)"},
		{Name: "buffer", Key: "defaults.buffer", Observe: true, Help: "buffer of the ports, e.g. 1MB (default: that of the port's tbf or htb)"},
		{Name: "shape", Key: "defaults.shape", Help: "give the ports a tbf of this rate meanwhile, in place of the kernel's default queue discipline"},
		{Name: "rtt", Key: "defaults.rtt", Default: "250us", Observe: true, Help: "round-trip time of flows with empty queues; it limits a flow's window"},
		{Name: "mark", Key: "defaults.mark.threshold", Help: "mark ECN-capable packets above this backlog, e.g. 200KB (default: do not mark)"},
		{Name: "metrics", Key: "metrics.listen", Default: "127.0.0.1:9187", Help: "address and port to serve metrics on; '': none"},
	}, laws.Switch().Flags()...)
}

func (f *switchFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.file, "file", "f", "", "read the configuration from FILE")
	flags.BoolVar(&f.check, "check", false, "check the configuration, and change nothing")
	flags.BoolVar(&f.schema, "schema", false, "print the JSON schema of the file")
	flags.BoolVar(&f.newest, "newest", false, "print the file of -f in the newest version of its keys")
	flags.StringVar(&f.name, "name", switchd.DefaultName, "name of the switch, for a machine with several")
	for _, l := range fileFlags() {
		flags.String(l.Name, l.Default, l.Help)
	}
	flags.StringArrayVar(&f.scope, "scope", nil, "manage only flows with both ends in these PREFIXes (repeatable; default all)")
	flags.BoolVar(&f.options.Purge, "purge", false, "remove the pinned tables at the end; without PORT: remove them now")
	flags.BoolVar(&f.options.TakeOver, "take-over", false, "take over from the running process of this name")
	flags.BoolVar(&f.options.Wait, "wait", false, "wait for ports that do not exist yet (always on with -f)")
	flags.BoolVar(&f.options.Renew, "renew", false, "replace pinned tables of another version of Weir; flows are adopted")
	flags.BoolVar(&f.asJSON, "json", false, "log in JSON, one object per line")
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
		return usageError(errors.New("--newest needs a file: set it with -f"))
	}
	text, err := laws.Switch().Newest(f.file)
	if err != nil {
		return usageError(err)
	}
	_, err = w.Write(text)
	return err
}

// warnOld prints a warning for a file of an earlier version, with the command that converts it.
func warnOld(w io.Writer, c *switchd.Config) {
	if c.Warning != "" {
		fmt.Fprintln(w, "weir: warning: "+c.Warning)
	}
}

// purge removes a switch, and lists those that remain.
func purge(w io.Writer, name string) error {
	if err := needRights("weir switch --purge"); err != nil {
		return err
	}
	before, err := laws.Switch().Names()
	if err != nil {
		return err
	}
	if err := laws.Switch().Purge(name); err != nil {
		return err
	}
	left, err := laws.Switch().Names()
	if err != nil {
		return err
	}
	text := "switch " + name + ": nothing was pinned"
	if slices.Contains(before, name) {
		text = "removed switch " + name
	}
	for _, other := range left {
		text += fmt.Sprintf("\nanother switch remains: %s; weir switch --purge --name %s removes it", other, other)
	}
	_, err = fmt.Fprintln(w, text)
	return err
}

// hangups returns the signals that ask for a reload. Without a file they end the process as usual.
func hangups() <-chan os.Signal {
	c := make(chan os.Signal, 1) // one more is kept while a reload runs
	signal.Reset(syscall.SIGHUP)
	signal.Notify(c, syscall.SIGHUP)
	return c
}

// config returns the configuration of the file, or of the command line.
func (f *switchFlags) config(cmd *cobra.Command, args []string) (*switchd.Config, error) {
	if f.file == "" {
		if len(args) == 0 {
			return nil, fmt.Errorf("no ports: name at least one, or set a file with -f (see '%s --help')", cmd.CommandPath())
		}
		t, err := f.tree(cmd.Flags(), args)
		if err != nil {
			return nil, err
		}
		return laws.Switch().FromOptions(t)
	}
	if len(args) > 0 {
		return nil, errors.New("-f and PORT exclude each other: name the ports in the file")
	}
	for _, name := range f.inFile() {
		if cmd.Flags().Changed(name) {
			return nil, fmt.Errorf("-f and --%s exclude each other: set it in the file", name)
		}
	}
	return laws.Switch().Load(f.file)
}

// inFile lists the flags that belong into the file if there is one.
func (f *switchFlags) inFile() []string {
	names := []string{"name", "scope"}
	for _, l := range fileFlags() {
		names = append(names, l.Name)
	}
	return names
}

// tree returns the configuration in the form of a file, each value labelled with its flag.
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
