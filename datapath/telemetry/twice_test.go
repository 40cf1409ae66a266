package telemetry_test

import (
	"testing"

	"weir/datapath/attach"
	"weir/datapath/mark"
	"weir/datapath/telemetry"
	"weir/datapath/testnet"
	"weir/internal/testroot"
	"weir/law"
)

// hop is a port with the marking law and telemetry.
type hop struct {
	marks *mark.Mark
	tel   *telemetry.Telemetry
	sum   total
	r     telemetry.Reading
}

func newHop(t *testing.T, p attach.PortRef, threshold uint32) *hop {
	t.Helper()
	h := &hop{}
	var err error
	if h.marks, err = mark.Attach(ports(p), mark.Config{ThresholdBytes: threshold}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.marks.Close() })
	h.tel = attachTo(t, telemetry.Config{Signals: []law.Signal{law.Marks}}, telemetry.Port{PortRef: p})
	return h
}

func (h *hop) read(t *testing.T) mark.Stats {
	t.Helper()
	read(t, h.tel, &h.r)
	h.sum.add(&h.r, 0)
	stats, err := h.marks.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return stats[0]
}

// Packets pass two ports that mark. The second one counts what it marked itself, and not again what the first one did: each mark of a path
// is in one report. The ports are in different namespaces, so their ifindexes may be equal.
func TestTelemetry_CountsAMarkOnce(t *testing.T) {
	testroot.Need(t, "namespaces")
	// Each burst alone makes both queues longer than their thresholds, however late the test sends the next one. The first port marks its
	// second half, and the second port marks a part of the first half.
	p := testnet.NewPath(t, testnet.PathOptions{UplinkBps: 20e6, UplinkLimit: 60_000, PortBps: 5e6, Limit: 60_000, NoIPv6: true})
	first, second := newHop(t, p.Uplink, 30_000), newHop(t, p.Port, 10_000)
	u := p.NewUDP(t, testnet.ReceiverIPv4, 2)
	var a, b mark.Stats
	testnet.Until(t, "both ports have marked, and marks of the first have passed the second", func() bool {
		if a, b = first.read(t), second.read(t); first.sum.BacklogBytes+second.sum.BacklogBytes == 0 {
			u.Send(t, 40, 1400)
		}
		return a.Marked > 100 && b.Marked > 20 && b.PassedCE > 20
	})
	testnet.Until(t, "both queues have drained", func() bool {
		a, b = first.read(t), second.read(t)
		return first.sum.BacklogBytes+second.sum.BacklogBytes == 0
	})
	for name, h := range map[string]struct {
		*hop
		marks mark.Stats
	}{"first": {first, a}, "second": {second, b}} {
		if h.sum.Marks.Packets != h.marks.Marked || h.sum.Packets != h.marks.Seen {
			t.Errorf("the %s port reports %d marks of %d packets, and its law marked %d of %d", name, h.sum.Marks.Packets, h.sum.Packets, h.marks.Marked, h.marks.Seen)
		}
	}
	t.Logf("first: %+v, second: %+v", a, b)
}
