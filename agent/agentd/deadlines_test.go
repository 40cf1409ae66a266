package agentd

import (
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"weir/bus/weirv1"
	"weir/deadline"
	"weir/law"
)

// fakeTime is a clock that the test moves.
type fakeTime struct{ now time.Duration }

func (c *fakeTime) read() time.Duration { return c.now }

// newDeclarers returns deadlines of the VMs 1, 2 and 3: 10.0.0.N, 1 and 2 of one tenant.
func newDeclarers(cfg Deadlines, uplink law.Rate) (*deadlines, *fakeTime) {
	clock := &fakeTime{now: time.Second}
	d := newDeadlines(&cfg, uplink, clock.read, slog.New(slog.DiscardHandler))
	var vms []VM
	for n := 1; n <= 3; n++ {
		v := VM{Number: law.VM(n), Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 32)}}
		if n < 3 {
			v.Labels = map[string]string{"tenant": "a"}
		}
		vms = append(vms, v)
	}
	d.become(vms)
	return d, clock
}

// quotas are those of the tests.
func quotas() Deadlines {
	return Deadlines{VM: Quota{Rate: 100, Live: 10}, Tenant: Quota{Rate: 150, Live: 15}}
}

// of returns a declaration of a VM's flow number n.
func of(vm, n int, within time.Duration, bytes uint64) deadline.Declaration {
	return deadline.Declaration{
		Source:      netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(vm)}), uint16(n%60000+1)),
		Destination: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(n / 60000), 1}), 80), Within: within, Bytes: bytes,
	}
}

// say declares as the handler does, and returns the reason of a refusal.
func say(d *deadlines, vm int, what deadline.Declaration) (id uint64, reason string) {
	err := d.admits(law.VM(vm))
	if err == nil {
		id, err = d.declare(law.VM(vm), what)
	}
	if err != nil {
		reason, _ = reasonOf(err)
	}
	return id, reason
}

func TestDeadlines_Quotas(t *testing.T) {
	d, clock := newDeclarers(quotas(), 0)
	want := func(what string, vm int, decl deadline.Declaration, reason string) uint64 {
		t.Helper()
		id, got := say(d, vm, decl)
		if got != reason {
			t.Errorf("%s: %q, want %q", what, got, reason)
		}
		return id
	}
	var first uint64
	for n := range 10 {
		id := want("within the quota", 1, of(1, n, time.Second, 1000), "")
		if n == 0 {
			first = id
		}
	}
	want("the eleventh of a VM", 1, of(1, 10, time.Second, 1000), refusedLive)
	want("one that replaces another", 1, of(1, 3, time.Second, 2000), "")
	for n := range 5 {
		want("the tenant's others", 2, of(2, n, time.Second, 1000), "")
	}
	want("the sixteenth of a tenant", 2, of(2, 5, time.Second, 1000), refusedLive)
	want("another tenant", 3, of(3, 0, time.Second, 1000), "")
	want("the address of another VM", 3, of(1, 0, time.Second, 1000), refusedSource)
	if err := d.delete(3, first); err == nil {
		t.Error("VM 3 deletes a declaration of VM 1")
	}
	if err := d.delete(1, first); err != nil {
		t.Error(err)
	}
	want("in its place", 1, of(1, 11, time.Second, 1000), "")
	clock.now += time.Second
	if l := d.list(1); len(l.Deadlines) != 0 || l.Refused[refusedLive] != 1 {
		t.Errorf("after the deadlines: %+v", l)
	}
	want("after the deadlines", 1, of(1, 12, time.Second, 1000), "")
	if s := d.status(); s.Live != 1 || s.Refused[refusedLive] != 2 || s.Refused[refusedSource] != 1 || s.Refused[refusedUnknown] != 1 || s.Taken != 19 {
		t.Errorf("%+v", s)
	}
}

func TestDeadlines_Rate(t *testing.T) {
	d, clock := newDeclarers(quotas(), 0)
	taken := func(vm int) (n int) {
		for range 1000 {
			if d.admits(law.VM(vm)) == nil {
				n++
			}
		}
		return n
	}
	if n := taken(1); n != 100 {
		t.Errorf("a burst of %d, want 100", n)
	}
	if n := taken(2); n != 50 {
		t.Errorf("its tenant has %d left, want 50", n)
	}
	if n := taken(3); n != 100 {
		t.Errorf("another tenant has %d, want 100", n)
	}
	clock.now += 500 * time.Millisecond
	if n := taken(1); n != 50 {
		t.Errorf("half a second later %d, want 50", n)
	}
}

// Demands above the quota are refused: the uplink's rate is the most that a VM may ask for.
func TestDeadlines_Demand(t *testing.T) {
	q := quotas()
	q.Tenant.Demand = 150e6
	d, clock := newDeclarers(q, 100e6)
	if _, why := say(d, 1, of(1, 0, time.Second, 13e6)); why != refusedDemand {
		t.Errorf("104 Mbit/s of 100: %q", why)
	}
	if _, why := say(d, 1, of(1, 1, time.Second, 10e6)); why != "" {
		t.Errorf("80 Mbit/s: %q", why)
	}
	if _, why := say(d, 2, of(2, 1, time.Second, 10e6)); why != refusedDemand {
		t.Errorf("160 Mbit/s of a tenant's 150: %q", why)
	}
	if _, why := say(d, 3, of(3, 1, time.Second, 10e6)); why != "" {
		t.Errorf("another tenant: %q", why)
	}
	clock.now += time.Second
	if _, why := say(d, 2, of(2, 1, time.Second, 10e6)); why != "" {
		t.Errorf("after the deadline: %q", why)
	}
	q.NoQuotas = true
	d, _ = newDeclarers(q, 100e6)
	if _, why := say(d, 1, of(1, 0, time.Millisecond, 1e12)); why != "" {
		t.Errorf("without quotas: %q", why)
	}
}

// A VM declares a million deadlines. With quotas others declare as before and the memory is small. Without them the VM takes all places.
func TestDeadlines_Flood(t *testing.T) {
	flood := func(cfg Deadlines) (d *deadlines, mib uint64, other string) {
		d, clock := newDeclarers(cfg, 0)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for n := range 1_000_000 {
			if n%1000 == 0 {
				clock.now += time.Millisecond // a million a second
			}
			_, _ = say(d, 1, of(1, n, time.Hour, 1e9))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		mib = (max(after.HeapAlloc, before.HeapAlloc) - before.HeapAlloc) >> 20
		_, other = say(d, 3, of(3, 0, time.Second, 1000))
		if len(d.unsent) > deadlinesMost {
			t.Errorf("%d wait for the bus", len(d.unsent))
		}
		return d, mib, other
	}
	d, mib, other := flood(quotas())
	if s := d.status(); other != "" || mib > 1 || s.Live != 11 || s.Refused[refusedRate] < 990_000 {
		t.Errorf("with quotas: another VM %q, %d MiB, %+v", other, mib, s)
	}
	open := quotas()
	open.NoQuotas = true
	d, mib, other = flood(open)
	if s := d.status(); other != refusedFull || mib > 64 || s.Live != deadlinesMost {
		t.Errorf("without quotas: another VM %q, %d MiB, %+v: the test shows no harm, or memory is not bounded", other, mib, s)
	}
}

// Messages: each declaration once, those that were lost again, all of them after a new term with the same number.
func TestDeadlines_Messages(t *testing.T) {
	d, clock := newDeclarers(Deadlines{}, 0)
	woken := 0
	d.wake = func() { woken++ }
	text := func(all []*weirv1.Deadline) string {
		var s []string
		for _, m := range all {
			s = append(s, fmt.Sprintf("%d:%v %d B value %d", m.GetFlow().GetSourcePort(), time.Duration(m.GetWithinNs()), m.GetSizeBytes(), m.GetValue()))
		}
		return strings.Join(s, ", ")
	}
	what := of(1, 4, time.Second, 1000)
	what.Value = 7
	id, _ := say(d, 1, what)
	clock.now += 10 * time.Millisecond
	all := d.message()
	if got := text(all); got != "5:990ms 1000 B value 7" || all[0].GetNumber() != id || woken != 1 {
		t.Errorf("%s, number %d, woken %d", got, all[0].GetNumber(), woken)
	}
	if again := d.message(); again != nil {
		t.Errorf("again: %s", text(again))
	}
	d.lost(all)
	if again := d.message(); text(again) != text(all) || again[0].GetNumber() != id {
		t.Errorf("after a loss: %s", text(again))
	}
	d.again()
	if again := d.message(); text(again) != text(all) || again[0].GetNumber() != id {
		t.Errorf("after a new term: %s", text(again))
	}
	if err := d.delete(1, id); err != nil {
		t.Fatal(err)
	}
	if back := d.message(); text(back) != "5:0s 0 B value 0" || back[0].GetNumber() <= id {
		t.Errorf("taken back: %s", text(back))
	}
	d.lost(all)
	if late := d.message(); late != nil {
		t.Errorf("a message that was taken back meanwhile is sent again: %s", text(late))
	}
	for n := range weirv1.MaxDeadlines + 1 {
		if _, why := say(d, 3, of(3, n, time.Second, 1)); why != "" {
			t.Fatal(why)
		}
	}
	if a, b := d.message(), d.message(); len(a) != weirv1.MaxDeadlines || len(b) != 1 {
		t.Errorf("messages of %d and %d", len(a), len(b))
	}
	if _, err := weirv1.Encode(&weirv1.Events{Host: 1, Origin: &weirv1.Origin{Incarnation: 1}, Deadlines: all}); err != nil {
		t.Error(err)
	}
	d.become(nil)
	if s := d.status(); s.Live != 0 {
		t.Errorf("of VMs that are gone: %+v", s)
	}
}
