package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"weir/openflow"
)

func (d *switchDump) text(w io.Writer) {
	fmt.Fprintf(w, "switch %016x: %d tables, %d buffers, can %s\n", d.Features.DatapathID, d.Features.Tables, d.Features.Buffers, d.Features.Capabilities)
	if s := d.Description; s != nil {
		fmt.Fprintln(w, printable(fmt.Sprintf("%s, %s, software %s, serial number %s, %s", s.Manufacturer, s.Hardware, s.Software, s.SerialNum, s.Datapath)))
	}
	portsText(w, d.Ports)
	for _, t := range d.Tables {
		fmt.Fprintf(w, "table %s: %d flows, %d of %d packets matched\n", t.TableID, t.ActiveCount, t.MatchedCount, t.LookupCount)
	}
	for _, g := range d.Groups {
		fmt.Fprintf(w, "group %s: %s", g.GroupID, g.Type)
		for _, b := range g.Buckets {
			fmt.Fprintf(w, ", bucket of weight %d: %s", b.Weight, b.Actions)
		}
		fmt.Fprintln(w)
	}
	for i := range d.Meters {
		m := &d.Meters[i]
		fmt.Fprintf(w, "meter %s: %s", m.MeterID, m.Flags)
		for _, b := range m.Bands {
			fmt.Fprintf(w, ", %s above %d, bursts of %d", b.Type, b.Rate, b.BurstSize)
		}
		fmt.Fprintln(w)
	}
	flowsText(w, d.Flows)
	for _, what := range slices.Sorted(maps.Keys(d.Missing)) {
		fmt.Fprintf(w, "no %s: %s\n", what, printable(d.Missing[what]))
	}
}

// portsText prints a table of the ports.
func portsText(w io.Writer, ports []switchPort) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "port\tname\taddress\tstate\tMbit/s\trx packets\trx bytes\trx lost\ttx packets\ttx bytes\ttx lost\t")
	for i := range ports {
		p := &ports[i]
		state := "up"
		switch {
		case p.Config&openflow.PortDown != 0:
			state = "set down"
		case p.State&openflow.PortLinkDown != 0:
			state = "no link"
		}
		speed := "-"
		if p.CurrSpeed > 0 {
			speed = strconv.FormatUint(uint64(p.CurrSpeed)/1000, 10)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t", p.PortNo, printable(p.Name), p.HwAddr, state, speed)
		if s := p.Stats; s != nil {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t", counter(s.RxPackets), counter(s.RxBytes), counter(s.RxDropped), counter(s.TxPackets), counter(s.TxBytes), counter(s.TxDropped))
		} else {
			fmt.Fprint(t, "-\t-\t-\t-\t-\t-\t")
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush()
}

// counter prints "-" for a counter that the switch does not have.
func counter(n uint64) string {
	if n == ^uint64(0) {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

// flowsText prints one flow per line in the syntax of ovs-ofctl, with its counters in front.
func flowsText(w io.Writer, flows openflow.FlowStatsReply) {
	for i := range flows {
		f := &flows[i]
		age := time.Duration(f.DurationSec)*time.Second + time.Duration(f.DurationNsec)
		fmt.Fprintf(w, "table=%s, cookie=%#x, n_packets=%s, n_bytes=%s, age=%v", f.TableID, f.Cookie, counter(f.PacketCount), counter(f.ByteCount), age.Round(time.Millisecond))
		if f.IdleTimeout > 0 {
			fmt.Fprintf(w, ", idle_timeout=%d", f.IdleTimeout)
		}
		if f.HardTimeout > 0 {
			fmt.Fprintf(w, ", hard_timeout=%d", f.HardTimeout)
		}
		if f.Flags != 0 {
			fmt.Fprintf(w, ", flags=%s", f.Flags)
		}
		fmt.Fprintf(w, ", priority=%d, %s: %s\n", f.Priority, f.Match, f.Instructions)
	}
}
