package controller

import (
	"fmt"
	"time"

	"weir/bus/weirv1"
	"weir/law"
	"weir/law/flows"
)

// deadlines passes on what programs declared. A host declares for its own VMs only.
func (a *agents) deadlines(ag *agent, m *weirv1.Events) {
	for _, d := range m.GetDeadlines() {
		flow := d.GetFlow().Law()
		vm := a.vmAt(flow.Src.Addr())
		if m.GetHost() == 0 || vm == 0 || a.vms.of(vm) != ag {
			a.refuse(ag, "deadline", fmt.Sprintf("it declares a deadline of %v, which no VM of its host has", flow.Src.Addr()))
			ag.missed = true
			continue
		}
		left := time.Duration(d.GetWithinNs())
		if left > 0 { // 0 is: no deadline any more
			left = max(left-ag.delay.late, 1)
		}
		a.core.step(&flows.Declared{Flow: flow, Left: left, Bytes: d.GetSizeBytes(), Value: d.GetValue(), Number: d.GetNumber()})
	}
}

// flows passes on what became of the flows of a switch. Progress comes first of what begins, and last of what ends.
func (a *agents) flows(name string, m *weirv1.Events) {
	if len(m.GetFlows()) == 0 || m.GetSwitch() == 0 {
		return
	}
	at := law.Switch(m.GetSwitch())
	a.core.tracer.report(name, m.GetOrigin(), 0)
	defer a.core.tracer.idle()
	a.progress.At, a.progress.Sent = at, a.progress.Sent[:0]
	send := func() {
		if len(a.progress.Sent) > 0 {
			a.core.step(&a.progress)
			a.progress.Sent = a.progress.Sent[:0]
		}
	}
	for _, f := range m.GetFlows() {
		flow, port := f.GetFlow().Law(), law.Port{Switch: at, N: f.GetPort()}
		if f.GetBegan() {
			a.core.step(&flows.Began{At: port, Flow: flow})
		}
		if f.GetSentBytes() > 0 {
			a.progress.Sent = append(a.progress.Sent, flows.Sent{Port: f.GetPort(), Flow: flow, Bytes: f.GetSentBytes()})
		}
		if f.GetEnded() {
			send()
			a.core.step(&flows.Ended{At: port, Flow: flow})
		}
	}
	send()
}

// delayWindow is how long the fastest message of an agent counts, at least: clocks drift by a few µs in it.
const delayWindow = 10 * time.Second

// delay estimates how late a message of an agent is. The two clocks have an unknown difference, so the fastest message of the last
// seconds is taken to have taken no time.
type delay struct {
	least, before time.Duration // the least difference of the clocks, in this window and in the one before
	began         time.Duration // of this window; 0: none yet
	late          time.Duration // of the last message
}

// see takes a message that was sent at stamp, on the agent's clock, and came now.
func (d *delay) see(now, stamp time.Duration) {
	gap := now - stamp
	switch {
	case d.began == 0:
		*d = delay{least: gap, before: gap, began: max(now, 1)}
	case now-d.began >= delayWindow:
		d.before, d.least, d.began = d.least, gap, now
	}
	d.least = min(d.least, gap)
	d.late = gap - min(d.least, d.before)
}
