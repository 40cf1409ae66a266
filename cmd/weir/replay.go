package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/cmd/weir/laws"
	"weir/controller/record"
)

// actionsShown limits the actions of a difference that are printed.
const actionsShown = 6

func replayCommand() *cobra.Command {
	var o record.Options
	var asJSON, events, times bool
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Replay a controller's recording through its laws, or through others",
		Long: `Feed the recorded events of a controller (key record of its file) to the same laws with the same
parameters, and compare their actions with the recorded ones, to the byte. FILE is the key's path, for the
newest recording, or one of its files.

With --set or --law it runs other parameters or another law, and shows what would have been different. The
events stay those that were recorded: with other decisions, the network would have sent others.

Exit code: 0 equal (or --set, --law), 1 error, 2 usage, 3 different, or the recording is not whole.`,
		Example: `  weir replay /var/lib/weir/record/c1
  weir replay /var/lib/weir/record/c1 --set LAW.interval=2ms --set LAW.lease=500ms
  weir replay /var/lib/weir/record/c1.000003 --json
  weir replay /var/lib/weir/record/c1 --events | head`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := record.Open(args[0])
			if err != nil {
				return err
			}
			defer r.Close()
			if events {
				return printEvents(cmd.OutOrStdout(), r)
			}
			o.Specs = laws.All().Specs()
			res, err := record.Replay(r, o)
			if bad := (*record.OptionError)(nil); errors.As(err, &bad) {
				return usageError(err)
			}
			if err != nil {
				return err
			}
			if asJSON {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(res)
			} else {
				err = printReplay(cmd.OutOrStdout(), res, times)
			}
			if err == nil && !res.Other && !res.Same() {
				return &exitCode{code: exitDiffers}
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.Set, "set", nil, "`LAW.PARAMETER=VALUE`: run with another value (repeatable)")
	flags.StringVar(&o.Law, "law", "", "run this `LAW` in place of the recorded ones")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	flags.BoolVar(&times, "times", false, "print also when VM pairs or flows were limited, and how many at once")
	flags.BoolVar(&events, "events", false, "print the recorded events and actions, one JSON object per line, and replay nothing")
	return cmd
}

// printEvents prints each entry.
func printEvents(w io.Writer, r *record.Reader) error {
	out := json.NewEncoder(w)
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = out.Encode(e.Plain())
		}
		if err != nil {
			return err
		}
	}
}

func printReplay(w io.Writer, r *record.Result, times bool) error {
	fmt.Fprintf(w, "controller %s, Weir %s: %d events in %v\n", r.Controller, r.Weir, r.Entries, r.LastedNs.Round(time.Millisecond))
	for _, p := range r.Problems {
		fmt.Fprintf(w, "not whole: %s\n", p)
	}
	if !r.Ended {
		fmt.Fprintln(w, "no end: the controller was killed, or is still running")
	}
	if len(r.Laws) == 0 {
		fmt.Fprintln(w, "the controller had no laws but its own: there is nothing to compare")
	}
	for i := range r.Laws {
		if err := printLaw(w, r, &r.Laws[i]); err != nil {
			return err
		}
		if !times {
			continue
		}
		l := &r.Laws[i]
		err := printTimes(w, "recorded", l.Recorded.Times)
		if !l.Equal {
			err = errors.Join(err, printTimes(w, "replayed", l.Replayed.Times))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func printLaw(w io.Writer, r *record.Result, l *record.LawResult) error {
	fmt.Fprintln(w)
	if l.Equal {
		fmt.Fprintf(w, "law %s: equal: every action, to the byte\n", l.Law)
	} else {
		fmt.Fprintf(w, "law %s: different after %d of %d events\n", l.Law, l.Differ, r.Entries)
		fmt.Fprintf(w, "  the first: event %d at %v, %s\n", l.First.Serial, l.First.Now.Round(time.Microsecond), l.First.Event)
		printActions(w, "recorded", l.First.Recorded)
		printActions(w, "replayed", l.First.Replayed)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\trecorded\treplayed\tchange\t")
	row := func(name string, was, is float64, text func(float64) string) {
		change := ""
		if was != is && was > 0 {
			change = fmt.Sprintf("%+.0f %%", 100*(is-was)/was)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", name, text(was), text(is), change)
	}
	count := func(n float64) string { return fmt.Sprintf("%.0f", n) }
	span := func(n float64) string { return time.Duration(n).Round(10 * time.Microsecond).String() }
	was, is := &l.Recorded, &l.Replayed
	kinds := map[string]bool{}
	for _, m := range []map[string]uint64{was.Grants, is.Grants} {
		for k := range m {
			kinds[k] = true
		}
	}
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		row(k+" grants", float64(was.Grants[k]), float64(is.Grants[k]), count)
	}
	row("releases", float64(was.Releases), float64(is.Releases), count)
	row("VMs limited", float64(was.VMs), float64(is.VMs), count)
	row("VM pairs or flows limited", float64(was.Keys), float64(is.Keys), count)
	row("times limited", float64(was.Holds), float64(is.Holds), count)
	row("limited, all together", float64(was.HeldNs), float64(is.HeldNs), span)
	row("limited, longest", float64(was.Longest), float64(is.Longest), span)
	if err := t.Flush(); err != nil {
		return err
	}
	if r.Other {
		fmt.Fprintf(w, "parameters: %s\n", l.Params)
		fmt.Fprintln(w, "The events are the recorded ones: with other decisions the network would have sent others.")
	}
	return nil
}

// printTimes prints when pairs or flows were limited.
func printTimes(w io.Writer, what string, times []record.Time) error {
	fmt.Fprintf(w, "\n%s: %d times in which VM pairs or flows were limited\n", what, len(times))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "from\tto\tlasted\tmost at once\t")
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	for _, at := range times {
		fmt.Fprintf(t, "%v\t%v\t%v\t%d\t\n", round(at.From), round(at.To), round(at.To-at.From), at.Most)
	}
	return t.Flush()
}

func printActions(w io.Writer, what string, all []string) {
	if len(all) == 0 {
		fmt.Fprintf(w, "    %s: nothing\n", what)
		return
	}
	more := ""
	if n := len(all) - actionsShown; n > 0 {
		more = fmt.Sprintf("; and %d more", n)
	}
	fmt.Fprintf(w, "    %s: %s%s\n", what, strings.Join(all[:min(len(all), actionsShown)], "; "), more)
}
