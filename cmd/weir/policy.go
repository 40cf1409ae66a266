package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"weir/bus"
	"weir/bus/pki"
	"weir/cmd/weir/laws"
	"weir/policy"
	"weir/policy/store"
)

const (
	policyConnect = 5 * time.Second  // to connect to the bus
	policyTimeout = 60 * time.Second // for all of a command
	exitDiffers   = 3                // weir policy diff: it succeeded, and the file differs
)

// policyFlags are the flags of all commands of `weir policy`.
type policyFlags struct {
	urls   []string
	keys   string
	asJSON bool
	dryRun bool
}

func policyCommand() *cobra.Command {
	f := &policyFlags{}
	var schema bool
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Decide which law, parameters and guarantees hold where",
		Long: `Read and change the policies that controllers enforce. A policy selects ports, hosts and VMs by name
or label, and says which laws run there, with which parameters, and what each VM is guaranteed.

The commands connect to the bus with an operator's certificate: weir bus enrol operator/NAME.
Exit codes: 0, 1 (failed, or refused), 2 (usage, or a broken file), 3 (diff: the file differs).`,
		Example: `  weir policy apply gold.yaml --dry-run
  weir policy apply gold.yaml --bus tls://10.0.0.5:4222 --keys /etc/weir/operator
  weir policy explain h1/web1
  weir policy rollback gold 2`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if schema {
				_, err := cmd.OutOrStdout().Write(policy.NewReader(laws.All().Specs()).Schema())
				return err
			}
			return cmd.Help()
		},
	}
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON schema of kind: Policy")
	flags := cmd.PersistentFlags()
	flags.StringSliceVar(&f.urls, "bus", []string{"tls://127.0.0.1:4222"}, "`URL` of a server of the bus; repeat it for more")
	flags.StringVar(&f.keys, "keys", "/etc/weir/operator", "`DIRECTORY` that 'weir bus enrol' wrote")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	cmd.AddCommand(policyApplyCommand(f), policyGetCommand(f), policyDiffCommand(f), policyDeleteCommand(f), policyRollbackCommand(f),
		policyLogCommand(f), policyExplainCommand(f), policyForgetCommand(f))
	return cmd
}

// policySession is one command's view of the policies.
type policySession struct {
	*policyFlags
	cmd      *cobra.Command
	conn     *bus.Conn
	reader   *policy.Reader
	store    *store.Store
	snap     *store.Snapshot
	nodes    []policy.Node
	lives    []policy.Live // of controllers
	warnings []string
}

// run connects, reads the policies, and calls do.
func (f *policyFlags) run(cmd *cobra.Command, do func(ctx context.Context, s *policySession) error) error {
	files, err := keysIn(f.keys)
	if err != nil {
		return usageError(err)
	}
	c, err := bus.Dial(bus.ClientConfig{URLs: f.urls, Files: files})
	if err != nil {
		return usageError(err)
	}
	defer c.Close()
	if role := c.Identity().Role; role != pki.Operator && role != pki.Controller {
		return usageError(fmt.Errorf("%s is for %s, which may not read policies: want operator/NAME", files.Own, c.Identity()))
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), policyTimeout)
	defer cancel()
	within, stop := context.WithTimeout(ctx, policyConnect)
	defer stop()
	if err := c.Ready(within); err != nil {
		return err
	}
	kv, err := store.Bus(ctx, c, 0)
	if err != nil {
		return err
	}
	s := &policySession{policyFlags: f, cmd: cmd, conn: c, reader: policy.NewReader(laws.All().Specs())}
	s.store = store.New(kv, store.Author{Identity: c.Identity().String(), User: localUser()})
	if s.snap, err = s.store.Read(ctx); err != nil {
		return err
	}
	return do(ctx, s)
}

// inventory reads the inventory, and what controllers enforce. Records that cannot be read are warned of.
func (s *policySession) inventory(ctx context.Context) error {
	nodes, problems, err := s.store.Inventory(ctx)
	if err != nil {
		return err
	}
	lives, more, err := s.store.Lives(ctx)
	s.nodes, s.lives = nodes, lives
	for _, p := range slices.Concat(problems, more) {
		s.warnings = append(s.warnings, p.Error()+": it is left out")
	}
	return err
}

// view is what is known of the policies.
func (s *policySession) view() *policy.View {
	return &policy.View{Specs: laws.All().Specs(), Policies: s.policies(), Inventory: s.nodes, Lives: s.lives, Change: s.snap.Change, Now: time.Now()}
}

func (s *policySession) policies() []policy.Policy { return s.snap.Parse(s.reader) }

// keysIn finds the files that 'weir bus enrol' wrote to a directory.
func keysIn(dir string) (pki.Files, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.pem"))
	if err != nil {
		return pki.Files{}, err
	}
	names = slices.DeleteFunc(names, func(n string) bool { return filepath.Base(n) == "ca.pem" })
	if len(names) != 1 {
		return pki.Files{}, fmt.Errorf("%s has %d certificates, want one: make a directory of its own with 'weir bus enrol operator/NAME', and name it with --keys", dir, len(names))
	}
	return pki.In(dir, strings.TrimSuffix(filepath.Base(names[0]), ".pem")), nil
}

// localUser returns who runs the command, behind sudo too.
func localUser() string {
	name := os.Getenv("SUDO_USER")
	if u, err := user.Current(); err == nil {
		name = cmp.Or(name, u.Username)
	}
	return name
}

func policyApplyCommand(f *policyFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apply FILE...",
		Short: "Add or replace policies: all of the files, or none",
		Long: `Add the policies of the files, or replace those of the same names. Nothing is changed if a file is
broken, if two policies contradict each other at a target, or if the guarantees exceed a capacity.`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			given, texts, err := loadPolicies(args)
			if err != nil {
				return usageError(err)
			}
			return f.run(cmd, func(ctx context.Context, s *policySession) error {
				return s.change(ctx, store.Apply, given, texts, nil)
			})
		},
	}
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would change at which target, and change nothing")
	return cmd
}

// loadPolicies reads the files of apply.
func loadPolicies(paths []string) ([]policy.Policy, []store.Text, error) {
	if len(paths) > policy.MaxPolicies {
		return nil, nil, fmt.Errorf("%d files, and the limit is %d", len(paths), policy.MaxPolicies)
	}
	reader := policy.NewReader(laws.All().Specs())
	var given []policy.Policy
	var texts []store.Text
	var errs []error
	from := map[string]string{}
	for _, path := range paths {
		p, text, err := reader.Load(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if other, twice := from[p.Name]; twice {
			errs = append(errs, fmt.Errorf("%s and %s are both for the policy %s: apply one of them", other, path, p.Name))
			continue
		}
		from[p.Name] = path
		given, texts = append(given, *p), append(texts, store.Text{Name: p.Name, Text: text})
	}
	return given, texts, errors.Join(errs...)
}

// policyResult is what a change did, or would do.
type policyResult struct {
	Change   uint64                `json:"change,omitempty"` // 0: none
	DryRun   bool                  `json:"dry_run,omitempty"`
	Policies []store.ChangedPolicy `json:"policies"`
	*policy.Proposal
}

// change checks a change, makes it unless it is refused, and prints it.
func (s *policySession) change(ctx context.Context, action string, given []policy.Policy, texts []store.Text, remove []string) error {
	if err := s.inventory(ctx); err != nil {
		return err
	}
	r := policyResult{DryRun: s.dryRun, Policies: []store.ChangedPolicy{}}
	same := map[string]bool{}
	for _, t := range texts {
		if before, has := s.snap.Find(t.Name); has && bytes.Equal(before.Text, t.Text) {
			same[t.Name] = true
		} else {
			r.Policies = append(r.Policies, s.snap.Next(t.Name))
		}
	}
	for _, name := range remove {
		if p, has := s.snap.Find(name); has {
			r.Policies = append(r.Policies, store.ChangedPolicy{Name: name, From: p.Version})
		}
	}
	given = slices.DeleteFunc(given, func(p policy.Policy) bool { return same[p.Name] })
	texts = slices.DeleteFunc(texts, func(t store.Text) bool { return same[t.Name] })
	r.Proposal = policy.Propose(laws.All().Specs(), append(policy.OfFile(s.lives), s.policies()...), given, remove, s.nodes)
	r.Warnings = append(s.warnings, r.Warnings...)
	if len(r.Refused) == 0 && !s.dryRun && len(r.Policies) > 0 {
		c, err := s.store.Commit(ctx, s.snap, action, texts, remove)
		if err != nil {
			return err
		}
		r.Change, r.Policies = c.Number, c.Policies
	}
	if err := s.print(r, func() error { return printPolicyChange(s.cmd, &r) }); err != nil {
		return err
	}
	if len(r.Refused) > 0 {
		return &exitCode{code: exitError}
	}
	return nil
}

// print prints v as JSON, or calls text.
func (s *policySession) print(v any, text func() error) error {
	if !s.asJSON {
		return text()
	}
	e := json.NewEncoder(s.cmd.OutOrStdout())
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func policyDeleteCommand(f *policyFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a policy; rollback brings it back",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, func(ctx context.Context, s *policySession) error {
				if _, has := s.snap.Find(args[0]); !has {
					_, err := s.store.Version(ctx, s.snap, args[0], 0)
					return err
				}
				return s.change(ctx, store.Delete, nil, nil, args)
			})
		},
	}
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would change at which target, and change nothing")
	return cmd
}

func policyRollbackCommand(f *policyFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollback NAME VERSION",
		Short: "Apply an earlier version of a policy again, as a new version",
		Args:  usageArgs(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			version, err := policyVersion(args[1])
			if err != nil {
				return err
			}
			return f.run(cmd, func(ctx context.Context, s *policySession) error {
				text, err := s.store.Version(ctx, s.snap, args[0], version)
				if err != nil {
					return err
				}
				p, err := s.reader.Parse(fmt.Sprintf("%s (version %d)", args[0], version), text)
				if err != nil {
					return err
				}
				return s.change(ctx, store.Rollback, []policy.Policy{*p}, []store.Text{{Name: args[0], Text: text}}, nil)
			})
		},
	}
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would change at which target, and change nothing")
	return cmd
}

func policyVersion(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n == 0 {
		return 0, usageError(fmt.Errorf("%.40q is not a version: want a number from 1", text))
	}
	return int(n), nil
}

func policyGetCommand(f *policyFlags) *cobra.Command {
	var version int
	cmd := &cobra.Command{
		Use:   "get [NAME]",
		Short: "List the policies and how much of each holds, or print one",
		Args:  usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if version < 0 || version > 0 && len(args) == 0 {
				return usageError(errors.New("--version N needs the name of a policy, and N from 1"))
			}
			return f.run(cmd, func(ctx context.Context, s *policySession) error {
				if len(args) == 1 {
					return s.get(ctx, args[0], version)
				}
				if err := s.inventory(ctx); err != nil {
					return err
				}
				list := s.view().State().Policies
				return s.print(slices.Concat([]policy.Status{}, list), func() error { return printPolicies(s.cmd, list, s.warnings) })
			})
		},
	}
	cmd.Flags().IntVar(&version, "version", 0, "print version `N` instead of the newest")
	return cmd
}

// get prints the text of a policy.
func (s *policySession) get(ctx context.Context, name string, version int) error {
	text, err := s.store.Version(ctx, s.snap, name, version)
	if err != nil {
		return err
	}
	if p, has := s.snap.Find(name); has {
		version = cmp.Or(version, p.Version)
	}
	out := struct {
		Name    string `json:"name"`
		Version int    `json:"version"`
		Text    string `json:"text"`
	}{name, version, string(text)}
	return s.print(out, func() error {
		_, err := s.cmd.OutOrStdout().Write(text)
		return err
	})
}

func policyDiffCommand(f *policyFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "diff FILE",
		Short: "Compare a file with the policy of its name. Exit code 3: they differ",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			given, texts, err := loadPolicies(args)
			if err != nil {
				return usageError(err)
			}
			return f.run(cmd, func(_ context.Context, s *policySession) error {
				old, before := "no policy "+given[0].Name, []byte(nil)
				if p, has := s.snap.Find(given[0].Name); has {
					old, before = fmt.Sprintf("%s version %d", p.Name, p.Version), p.Text
				}
				lines := diff.Diff(old, before, args[0], texts[0].Text)
				out := struct {
					Name    string `json:"name"`
					Differs bool   `json:"differs"`
					Diff    string `json:"diff,omitempty"`
				}{given[0].Name, len(lines) > 0, string(lines)}
				err := s.print(out, func() error {
					_, err := cmd.OutOrStdout().Write(lines)
					return err
				})
				if err == nil && len(lines) > 0 {
					return &exitCode{code: exitDiffers}
				}
				return err
			})
		},
	}
}

func policyLogCommand(f *policyFlags) *cobra.Command {
	var last int
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Show who changed which policies, and when; the newest first",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if last < 1 {
				return usageError(fmt.Errorf("--last %d: want 1 or more", last))
			}
			return f.run(cmd, func(ctx context.Context, s *policySession) error {
				changes, err := s.store.Log(ctx, last)
				if err != nil {
					return err
				}
				return s.print(slices.Concat([]store.Change{}, changes), func() error { return printPolicyLog(cmd, changes) })
			})
		},
	}
	cmd.Flags().IntVar(&last, "last", 20, "show the last `N` changes")
	return cmd
}

func policyExplainCommand(f *policyFlags) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "explain TARGET",
		Short: "Show what holds for a port, host or VM, by which policy, and why others do not",
		Long: `Show which laws, parameters and guarantee hold for a port (tor1/swp1), a host (h1) or a VM (web1, or
h1/web1), by which policies, and why other policies do not. Controllers report what holds, and the grants of
each VM.`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, func(ctx context.Context, s *policySession) error {
				if err := s.inventory(ctx); err != nil {
					return err
				}
				found, err := s.view().Explain(args[0])
				if err != nil {
					return err
				}
				return s.print(found, func() error { return printExplanations(cmd, found, all) })
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "list all policies that do not select it, with the reason")
	return cmd
}
