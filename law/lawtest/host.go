package lawtest

import (
	"testing"
	"time"

	"weir/law"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// Host drives the half of a law at a hypervisor that limits the rates of VMs. Ticks come when the law wants them.
type Host struct {
	T   testing.TB
	Law law.Law
	Now time.Duration
	Got map[law.VM]law.Grant     // the last one of each VM; Lease 0: released
	At  map[law.VM]time.Duration // when it came
}

// NewHost begins with VMs 1 to vms and an uplink of so many bit/s. twin is a second law of the same kind (Checked).
func NewHost(t testing.TB, l, twin law.Law, uplink law.Rate, vms int) *Host {
	t.Helper()
	h := &Host{T: t, Law: Checked(t, l, twin), Got: map[law.VM]law.Grant{}, At: map[law.VM]time.Duration{}}
	has := &inventory.Host{At: 1, Rate: uplink}
	for n := range vms {
		has.VMs = append(has.VMs, inventory.VM{Number: law.VM(n + 1)})
	}
	h.Step(has)
	return h
}

// Step gives the law an event now. Its actions must be rates.
func (h *Host) Step(e law.Event) {
	h.T.Helper()
	for _, a := range h.Law.Step(h.Now, e, nil) {
		g := a.(law.Grant)
		if g.Kind != law.RateGrant || g.Value == 0 {
			h.T.Errorf("%+v: want a rate", g)
		}
		h.Got[g.Key.VM], h.At[g.Key.VM] = g, h.Now
	}
}

// Until gives the ticks up to a time.
func (h *Host) Until(at time.Duration) {
	h.T.Helper()
	for w := h.Law.Wake(); w != 0 && w <= at; w = h.Law.Wake() {
		if w <= h.Now {
			h.T.Fatalf("wakes at %v, and it is %v", w, h.Now)
		}
		h.Now = w
		h.Step(law.Tick{})
	}
	h.Now = at
}

// Send has VMs send, each 100 packets.
func (h *Host) Send(vms ...law.VM) {
	h.T.Helper()
	e := &telemetry.Sent{T: 5 * time.Millisecond}
	for _, vm := range vms {
		e.VMs = append(e.VMs, telemetry.VMSent{VM: vm, Packets: 100})
	}
	h.Step(e)
}

// Marks is a message with so many marks of a VM.
func (h *Host) Marks(vm law.VM, n float64) {
	h.T.Helper()
	h.Step(&telemetry.Marked{VM: vm, Marks: uint64(n * telemetry.OneMark)})
}
