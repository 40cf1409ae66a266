package agentd_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weir/agent/agentd"
	"weir/bus/weirv1"
	"weir/datapath/attach"
	"weir/datapath/testnet"
	"weir/law"
)

// BenchmarkLoop measures the loop from a reading at the switch to the grant in an ACK that arrives at the VM. The agent has both
// roles. A controller without a law answers a report with another window, which a tap at the VM's device then sees. The report's
// time is that of its reading, and the tap's that of the kernel. The signal itself is up to T = 5 ms older than the reading.
func BenchmarkLoop(b *testing.B) {
	m := newMachine(b, 1, testnet.PathOptions{UplinkBps: uplinkBps, UplinkLimit: uplinkBuffer, GSO: true, ChecksumOffload: true})
	m.dummy(true)
	m.start(m.switchFile("") + strings.TrimPrefix(m.hostFile("", 0), m.header()))
	m.until("all is well", func(s *agentd.Status) bool { return len(s.Well()) == 0 })
	tap := testnet.NewTap(b, m.inside(0))
	m.Path(0).NewStreams(b, testnet.PeerIPv4(0), 1)
	var shift uint8
	windows := func(seen func(w int, at time.Time)) {
		tap.Each(b, func(s *testnet.Segment) {
			if s.Flags&testnet.SYN != 0 && !s.Out {
				shift = scaleOf(b, s)
			} else if !s.Out {
				seen(int(s.Window)<<shift, s.At)
			}
		})
	}
	var took, came, carried []time.Duration
	look := time.NewTicker(2 * time.Millisecond) // the kernel stamps ACKs, so this rate has no effect on the figures
	defer look.Stop()
	for i := range b.N {
		wanted := granted + (1+i%8)<<14
		report := m.report()
		sent := time.Now().Add(-time.Duration(attach.MonotonicNs() - report.GetOrigin().GetStampNs()))
		grant := window(1, testnet.PeerIPv4(0), uint64(wanted))
		command := time.Now()
		if err := m.runner.Command(agentName, report.GetOrigin(), []law.Grant{grant}); err != nil {
			b.Fatal(err)
		}
		found := false
		came = append(came, time.Since(sent))
		for deadline := time.Now().Add(900 * time.Millisecond); !found && time.Now().Before(deadline); {
			<-look.C
			windows(func(w int, at time.Time) {
				if w == wanted && !found {
					found = true
					took = append(took, at.Sub(sent))
					carried = append(carried, at.Sub(command))
				}
			})
		}
	}
	slices.Sort(took)
	slices.Sort(came)
	slices.Sort(carried)
	if len(took) < b.N*9/10 {
		b.Fatalf("of %d grants only %d were seen", b.N, len(took))
	}
	b.ReportMetric(0, "ns/op")
	for name, part := range map[string]float64{"p50": 0.5, "p99": 0.99, "max": 1} {
		at := func(list []time.Duration) float64 {
			return float64(list[min(int(part*float64(len(list))), len(list)-1)].Microseconds())
		}
		b.ReportMetric(at(came), name+"-us-to-command")
		b.ReportMetric(at(took), name+"-us-to-ACK")
		b.ReportMetric(at(carried), name+"-us-command-to-ACK")
	}
}

// report waits for the next report of the switch.
func (m *machine) report() (last *weirv1.Telemetry) {
	inbox := m.runner.Control().Inbox()
	for drained := false; ; {
		agent, t, ok := inbox.Next()
		switch {
		case ok && drained && agent == agentName:
			return t
		case !ok:
			drained = true
			<-inbox.Telemetry()
		}
	}
}
