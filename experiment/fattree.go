package experiment

// fatTree builds a fat tree as the papers describe it: every aggregation switch is connected to every core switch,
// every ToR switch to every aggregation switch.
func (b *builder) fatTree() {
	if b.t.Pods > 0 {
		b.podTree()
		return
	}
	cores, aggs, tors := numbered("core", b.t.Cores), numbered("agg", b.t.Aggs), numbered("tor", b.t.ToRs)
	b.switches(cores...)
	b.switches(aggs...)
	b.switches(tors...)
	b.up(aggs, cores, func(int) int { return 0 })
	b.up(tors, aggs, func(i int) int { return i % len(aggs) })
	b.rackServers(tors, b.t.Servers)
}

// podTree builds the k-ary fat tree (Al-Fares, Loukissas and Vahdat, SIGCOMM 2008, section 2.2). It has k pods with k/2
// ToR and k/2 aggregation switches each, (k/2)^2 cores, and k/2 servers at each ToR; every switch has k ports. Pod
// p has ToR and aggregation switches (p-1)k/2+1 to p k/2. The first aggregation switch of each pod is connected to
// the first k/2 cores, the second to the second k/2, and so on; each ToR to all aggregation switches of its pod.
//
// With single routing only a spanning tree is built: core1, the first aggregation switch of each pod, and the
// ToRs. The other switches have no links.
func (b *builder) podTree() {
	half := b.t.Pods / 2
	cores, aggs, tors := numbered("core", half*half), numbered("agg", b.t.Pods*half), numbered("tor", b.t.Pods*half)
	b.switches(cores...)
	b.switches(aggs...)
	b.switches(tors...)
	first := func(int) int { return 0 }
	for i := range aggs {
		at := i % half // its position in its pod
		if at == 0 || b.t.Routing != "single" {
			b.up(aggs[i:i+1], cores[at*half:(at+1)*half], first)
		}
	}
	for from := 0; from < len(tors); from += half {
		b.up(tors[from:from+half], aggs[from:from+half], first)
	}
	b.rackServers(tors, half)
}
