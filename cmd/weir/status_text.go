package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"weir/agent/switchd"
)

const noSwitch = "no switch is pinned on this machine (start one with: weir switch PORT...)"

// printStatus prints a report for people: a table for each switch, and below it the details of each port.
func printStatus(w io.Writer, r *switchd.Report) error {
	var b bytes.Buffer
	if len(r.Switches) == 0 {
		fmt.Fprintln(&b, noSwitch)
	}
	for i := range r.Switches {
		printSwitch(&b, &r.Switches[i])
	}
	_, err := w.Write(b.Bytes())
	return err
}

func printSwitch(b *bytes.Buffer, s *switchd.Switch) {
	fmt.Fprintln(b, switchLine(s))
	if len(s.Ports) == 0 {
		return
	}
	ports := slices.SortedStableFunc(slices.Values(s.Ports), func(a, b switchd.Port) int { return naturally(a.Port, b.Port) })
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PORT\tSTATE\tFLOWS\tWINDOW\tTARGET\tQUEUE\tLONGEST\tPACKETS\tREWRITTEN/S\tDROPS/S")
	for i := range ports {
		p := &ports[i]
		rewritten, drops := rateTexts(p)
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", printable(p.Port), stateText(p), p.Flows, windowText(p),
			shortBytes(uint64(p.TargetBytes)), shortBytes(queueNow(p)), shortBytes(uint64(p.QueueMax)), p.Packets, rewritten, drops)
	}
	_ = t.Flush() // into a buffer, which cannot fail
	if text := signedText(s); text != "" {
		fmt.Fprintf(b, "signed segments by source: %s\n", text)
	}
	if text := parkingText(s.Parking); text != "" {
		fmt.Fprintf(b, "parking: %s\n", text)
	}
	for i := range ports {
		p := &ports[i]
		name := printable(p.Port)
		if p.Repairs != nil {
			fmt.Fprintf(b, "%s: %s\n", name, repairsText(p))
		}
		if p.Repairs == nil || p.Credits != nil {
			fmt.Fprintf(b, "%s: rewritten: %d; passed unchanged: %s\n", name, p.Rewritten, p.PassedText())
		}
		if p.Dropped > 0 && (p.Repairs == nil || p.Credits != nil) {
			fmt.Fprintf(b, "%s: dropped: %d signed\n", name, p.Dropped)
		}
		if text := creditsText(p.Credits); text != "" {
			fmt.Fprintf(b, "%s: %s\n", name, text)
		}
		for _, f := range p.Findings {
			fmt.Fprintf(b, "%s: %s: %s\n", name, findingLabel(&f), f.Reason)
			if f.Remedy != "" {
				fmt.Fprintf(b, "%*s  to do: %s\n", len(name), "", f.Remedy)
			}
		}
	}
}

// creditsText describes promises and credits at a port.
func creditsText(c *switchd.Credits) string {
	if c == nil {
		return ""
	}
	text := fmt.Sprintf("promises: %s live, %d granted", shortBytes(c.LiveBytes), c.Promised)
	if !c.Paces {
		return text
	}
	how := "not pacing"
	if c.Pacing {
		how = "pacing"
	}
	return text + fmt.Sprintf("; credits: %s, %d packets waited, the longest for %.3g ms, %d waits refused", how, c.Parked, c.LongestMs, c.Refused)
}

// repairsText describes the repair of losses at a port.
func repairsText(p *switchd.Port) string {
	r := p.Repairs
	text := fmt.Sprintf("repaired: %d of %d, %d of them late, the longest wait %.3g ms; behind others: %d; %s wait, %s at most",
		r.Repaired, r.Over+r.Full, r.Late, r.LongestMs, r.Behind, shortBytes(r.WaitingBytes), shortBytes(r.MostBytes))
	if p.Credits != nil && r.Full > 0 {
		text += fmt.Sprintf("; passed to the queue, because as many wait as may: %d", r.Full)
	}
	if p.Credits == nil && r.Full+r.Other > 0 {
		text += fmt.Sprintf("; dropped: %d segments, %d packets without TCP", r.Full, r.Other)
	}
	if r.Refused > 0 {
		text += fmt.Sprintf("; passed without the parking: %d", r.Refused)
	}
	return text
}

// parkingText describes the parking of a switch.
func parkingText(p *switchd.Parking) string {
	switch {
	case p == nil:
		return ""
	case !p.Present:
		return "missing"
	}
	text := fmt.Sprintf("%d packets wait (%s)", p.Packets, shortBytes(p.Bytes))
	if n := p.PassedGone + p.PassedFull + p.PassedMarked; n > 0 {
		text += fmt.Sprintf("; %d passed instead: %d while it was gone, %d while it was full, %d with a mark", n, p.PassedGone, p.PassedFull, p.PassedMarked)
	}
	return text
}

// signedText lists the sources with the most signed segments.
func signedText(s *switchd.Switch) string {
	var out []string
	for _, from := range s.SignedSources {
		text := fmt.Sprintf("%s %d", from.Address, from.Segments)
		if from.VLAN > 0 {
			text = fmt.Sprintf("%s (VLAN %d) %d", from.Address, from.VLAN, from.Segments)
		}
		if from.Dropped > 0 {
			text += fmt.Sprintf(" (%d dropped)", from.Dropped)
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// switchLine describes a switch in one line.
func switchLine(s *switchd.Switch) string {
	of := s.Name
	if s.Law != "" {
		of += " (" + s.Law + ")"
	}
	line := fmt.Sprintf("switch %s: %s", of, switchStateText(s))
	if s.Reason != "" {
		line += fmt.Sprintf(" (%s)", s.Reason)
	}
	if about := processText(s); about != "" {
		line += "; " + about
	}
	return line
}

// processText describes the process of a switch.
func processText(s *switchd.Switch) string {
	if s.UptimeSeconds == 0 {
		return ""
	}
	text := fmt.Sprintf("process %d, weir %s, up %s", s.PID, s.Version, uptimeText(s.UptimeSeconds))
	if s.RSSBytes > 0 {
		text += fmt.Sprintf(", %s, CPU %.1f%%", shortBytes(s.RSSBytes), 100*s.CPUSeconds/s.UptimeSeconds)
	}
	return text
}

// stateText returns a port's state, or the reason if it is idle.
func stateText(p *switchd.Port) string {
	if p.Idle() {
		return p.Word // down or observed
	}
	return string(p.State)
}

// switchStateText returns the state of a switch, or "observed" if it only observes, as configured.
func switchStateText(s *switchd.Switch) string {
	if s.Observes() {
		return s.Word
	}
	return string(s.State)
}

// findingLabel returns the label of a finding: a warning only if it is not as configured.
func findingLabel(f *switchd.Finding) string {
	switch {
	case f.Asked():
		return "note"
	case f.State == switchd.Enforced:
		return "warning"
	}
	return fmt.Sprintf("%s (%s)", f.State, f.Word)
}

func windowText(p *switchd.Port) string {
	if p.GrantBytes == 0 {
		return "-"
	}
	return shortBytes(p.GrantBytes)
}

// queueNow returns the present queue of the port: that of its queue discipline if it was read, or the last sample.
func queueNow(p *switchd.Port) uint64 {
	if p.QueueKind != "" {
		return uint64(p.Backlog)
	}
	return uint64(p.QueueBytes)
}

// rateTexts returns rewritten and dropped packets per second, "-" before a second reading.
func rateTexts(p *switchd.Port) (rewritten, drops string) {
	if p.Rates == nil {
		return "-", "-"
	}
	return shortNumber(p.Rates.Rewritten), shortNumber(p.Rates.Drops)
}

// shortBytes formats an amount of data with three digits, in at most 6 characters.
func shortBytes[N uint32 | uint64 | float64](n N) string {
	return short(float64(n), []string{"B", "KB", "MB", "GB", "TB", "PB", "EB"})
}

// shortNumber formats a number up to 1e21 with three digits, in at most 5 characters.
func shortNumber(f float64) string { return short(f, []string{"", "k", "M", "G", "T", "P", "E"}) }

func short(f float64, units []string) string {
	i := 0
	for ; f >= 999.5 && i < len(units)-1; i++ {
		f /= 1000
	}
	digits := 0
	switch {
	case i == 0 || f >= 99.95:
	case f >= 9.995:
		digits = 1
	default:
		digits = 2
	}
	text := strconv.FormatFloat(f, 'f', digits, 64)
	if digits > 0 {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text + units[i]
}

func uptimeText(s float64) string {
	d := time.Duration(s * float64(time.Second)).Truncate(time.Second)
	if d < 24*time.Hour {
		return d.String()
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// printable makes text of others safe for a line of a terminal: control characters are spelt out. The kernel allows
// them in a device's name, and an agent may send any.
func printable(text string) string {
	quoted := strconv.Quote(text)
	return unescaped.Replace(quoted[1 : len(quoted)-1])
}

var unescaped = strings.NewReplacer(`\"`, `"`, `\\`, `\`)
