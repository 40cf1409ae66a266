package controller

import (
	"fmt"
	"testing"
	"time"

	"weir/bus/weirv1"
	"weir/policy/store"
)

// BenchmarkPolicies applies 1000 policies for 1000 VMs of four hosts, and measures from the change until the hosts have all grants.
// 1000 caps in the files' order, and a law for every tenth VM.
func BenchmarkPolicies(b *testing.B) {
	const policies, hosts = 1000, 4
	k := newPolicyKit(b)
	var agents []*actor
	for i := range hosts {
		a, _ := k.actor(fmt.Sprintf("h%d", i), uint32(i+1))
		a.mu.Lock()
		for n := i; n < policies; n += hosts {
			a.guests = append(a.guests, &weirv1.Guest{Vm: uint32(n + 1), Name: fmt.Sprintf("vm%d", n), Labels: map[string]string{"n": fmt.Sprint(n)}})
		}
		a.serial++
		a.mu.Unlock()
		agents = append(agents, a)
	}
	k.until("the hosts are known", func() bool { return len(k.view().Inventory) == hosts })
	for round := 1; b.Loop(); round++ {
		var texts []store.Text
		for n := range policies {
			keys := fmt.Sprintf("guarantee: {cap: %dMbit}\n", 100+round%2)
			if n%10 == 0 {
				keys += "laws: {window: {}}\n"
			}
			text := fmt.Sprintf("kind: Policy\nversion: 1\nname: p%d\nselect: {vms: {labels: {n: '%d'}}}\n%s", n, n, keys)
			texts = append(texts, store.Text{Name: fmt.Sprintf("p%d", n), Text: []byte(text)})
		}
		begun := time.Now()
		k.commit(texts, nil)
		stored := time.Since(begun)
		want := uint64(100+round%2) * 1e6
		k.until("all grants", func() bool {
			for _, a := range agents {
				a.mu.Lock()
				ok := len(a.rate) == policies/hosts
				for _, r := range a.rate {
					ok = ok && r == want
				}
				a.mu.Unlock()
				if !ok {
					return false
				}
			}
			return true
		})
		b.ReportMetric(float64(stored.Milliseconds()), "ms-to-store")
		b.ReportMetric(float64(time.Since(begun).Milliseconds()), "ms-to-grants")
	}
}
