package main

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/policy"
	"weir/policy/store"
)

const (
	policyTargets = 50 // that apply lists
	policyOthers  = 5  // policies that explain lists without --all
	policyNames   = 4  // policies of a change in the log
)

func printPolicyChange(cmd *cobra.Command, r *policyResult) error {
	out, errs := cmd.OutOrStdout(), cmd.ErrOrStderr()
	for _, w := range r.Warnings {
		fmt.Fprintf(errs, "weir: warning: %s\n", w)
	}
	if len(r.Refused) > 0 {
		for i := range r.Refused {
			fmt.Fprintf(errs, "weir: refused: %v\n", r.Refused[i].Error())
		}
		fmt.Fprintf(errs, "weir: nothing was changed\n")
		return nil
	}
	for i, t := range r.Targets {
		if i == policyTargets {
			fmt.Fprintf(out, "... and %d more targets\n", len(r.Targets)-i)
			break
		}
		fmt.Fprintln(out, t.Target)
		for _, l := range t.Lines {
			fmt.Fprintf(out, "  %s\n", l)
		}
	}
	does := "change"
	switch {
	case len(r.Policies) == 0:
		_, err := fmt.Fprintln(out, "nothing to change: the policies are as in the files")
		return err
	case r.DryRun:
		does = "dry run"
	default:
		does += fmt.Sprintf(" %d", r.Change)
	}
	for _, p := range r.Policies {
		fmt.Fprintf(out, "%s: policy %s\n", does, changedPolicy(&p))
	}
	_, err := fmt.Fprintf(out, "%s: %d targets change\n", does, len(r.Targets))
	return err
}

func changedPolicy(p *store.ChangedPolicy) string {
	switch {
	case p.To == 0:
		return fmt.Sprintf("%s deleted (version %d)", p.Name, p.From)
	case p.From == 0:
		return fmt.Sprintf("%s added, version %d", p.Name, p.To)
	}
	return fmt.Sprintf("%s version %d -> %d", p.Name, p.From, p.To)
}

func printPolicies(cmd *cobra.Command, list []policy.Status, warnings []string) error {
	for _, w := range warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "weir: warning: %s\n", w)
	}
	t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tVERSION\tCONDITION\tTARGETS\tREASON")
	for _, s := range list {
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%s\n", s.Name, s.Version, s.Condition, s.Targets, cmp.Or(s.Reason, "-"))
	}
	return t.Flush()
}

func printPolicyLog(cmd *cobra.Command, changes []store.Change) error {
	t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CHANGE\tTIME\tBY\tUSER\tACTION\tPOLICIES")
	for _, c := range changes {
		var names []string
		for i := range c.Policies {
			if i == policyNames && len(c.Policies) > policyNames+1 {
				names = append(names, fmt.Sprintf("and %d more", len(c.Policies)-i))
				break
			}
			names = append(names, changedPolicy(&c.Policies[i]))
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\n", c.Number, c.Time.UTC().Format(time.RFC3339), c.By, cmp.Or(printable(c.User), "-"), c.Action, strings.Join(names, "; "))
	}
	return t.Flush()
}

func printExplanations(cmd *cobra.Command, found []policy.Explanation, all bool) error {
	t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	for i := range found {
		if i > 0 {
			fmt.Fprintln(t)
		}
		printExplanation(t, &found[i], all)
	}
	return t.Flush()
}

// grantor is what granted.
func grantor(g *policy.LiveGrant) string {
	if g.Law == "" {
		return "the cap of the guarantee"
	}
	return "the law " + g.Law
}

func printExplanation(t *tabwriter.Writer, e *policy.Explanation, all bool) {
	fmt.Fprintln(t, e.Target.String())
	for i := range e.Laws {
		a := &e.Laws[i]
		fmt.Fprintf(t, "  holds\t%s\tpolicy %s\n", a.String(), strings.Join(a.Policies, ", "))
	}
	if g := e.Guarantee; g != nil {
		fmt.Fprintf(t, "  holds\tguarantee: %s\tpolicy %s\n", g.String(), strings.Join(g.Policies, ", "))
	}
	if len(e.Laws) == 0 && e.Guarantee == nil {
		fmt.Fprintln(t, "  nothing holds")
	}
	for i := range e.Left {
		l := &e.Left[i]
		fmt.Fprintf(t, "  left out\t%s\tpolicy %s: %s\n", l.Item(), l.Policy, l.Reason())
	}
	if e.MoreLeft > 0 {
		fmt.Fprintf(t, "  left out\t%d more\n", e.MoreLeft)
	}
	for i := range e.Grants {
		g := &e.Grants[i]
		fmt.Fprintf(t, "  granted\t%s\tby %s, until %v after the report of %v ago unless renewed\n", g.String(), grantor(g), g.Expiry.Round(time.Millisecond), g.Age.Round(10*time.Millisecond))
	}
	for i, o := range e.Others {
		if i == policyOthers && !all {
			fmt.Fprintf(t, "  not selected\tby %d more policies: see --all\n", len(e.Others)-i)
			break
		}
		fmt.Fprintf(t, "  not selected\t\tpolicy %s: %s\n", o.Policy, o.Why)
	}
}
