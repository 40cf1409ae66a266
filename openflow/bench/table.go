package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// lateMost is how late the switches may send at half load (p99, us). Above it their own lateness is measured, and no waits
// are shown.
const lateMost = 250

// table prints a line for each case, as Markdown. The rest of what was measured is in the JSON.
func table(to io.Writer, rows []row) {
	cases := make(map[work]map[string]row)
	for _, r := range rows {
		if cases[r.work] == nil {
			cases[r.work] = make(map[string]row)
		}
		cases[r.work][r.Controller] = r
	}
	kind := ""
	t := tabwriter.NewWriter(to, 0, 0, 0, ' ', tabwriter.AlignRight|tabwriter.Debug)
	line := func(cells ...string) { fmt.Fprintln(t, "\t "+strings.Join(cells, "\t ")+"\t") }
	for _, w := range works() {
		c := cases[w]
		if c == nil {
			continue
		}
		weir, osken := c["weir"], c["os-ken"]
		cells := []string{strconv.Itoa(w.Connections), strconv.Itoa(w.PacketIns + w.Replies), figure(weir.PerCPU), figure(c["bare"].PerCPU),
			figure(osken.PerCPU), ""}
		if w.Connections > 1 { // a process's own growth is not one connection's
			cells[5] = figure(weir.KiBPerConn)
		}
		names := []string{"connections", "at once", "Weir", "bare", "os-ken", "KiB"}
		if w.PacketIns > 0 {
			names = append(names, "Weir at half", "p50, p99 us", "late us", "os-ken at half", "p50, p99 us", "late us")
			cells = append(append(cells, atHalf(weir.Paced)...), atHalf(osken.Paced)...)
		}
		if kind != w.String() {
			_ = t.Flush() // to the terminal, as below
			kind = w.String()
			fmt.Fprintf(to, "\n%s, messages per CPU-second:\n\n", kind)
			line(names...)
			line(slices.Repeat([]string{"--:"}, len(names))...)
		}
		line(cells...)
	}
	_ = t.Flush()
}

// atHalf describes the half load: packet-ins per second, their waits, and the lateness of the switches.
func atHalf(p *paced) []string {
	waits := "-"
	switch {
	case p == nil:
		return []string{"", "", ""}
	case p.LateP99us <= lateMost:
		waits = fmt.Sprintf("%.0f, %.0f", p.P50us, p.P99us)
	}
	return []string{figure(p.PerSecond), waits, fmt.Sprintf("%.0f", p.LateP99us)}
}

// figure is a number for people; nothing if it was not measured.
func figure(x float64) string {
	switch {
	case x == 0:
		return ""
	case x >= 1e6:
		return fmt.Sprintf("%.2f M", x/1e6)
	case x >= 1e5:
		return fmt.Sprintf("%.0f k", x/1e3)
	case x >= 1e3:
		return fmt.Sprintf("%.1f k", x/1e3)
	}
	return fmt.Sprintf("%.0f", x)
}
