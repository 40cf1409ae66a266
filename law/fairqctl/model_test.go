package fairqctl

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/law"
	"weir/law/fabric"
	"weir/law/inventory"
)

// model is the law, slow and obvious. It keeps every copy that it ever saw, and finds from that which flows count, and where.
type model struct {
	p      Params
	copies []seen
	vms    map[law.Host][]int // the newest report of each host; those that came later count
	order  []law.Host
}

type seen struct {
	when     time.Duration
	at       uint32
	from, to netip.AddrPort
	flags    uint8
}

// flow is a flow that counts.
type flow struct{ from, to netip.AddrPort }

// flows returns those that count at a time, by going through the copies of each connection.
func (m *model) flows(now time.Duration) map[flow]bool {
	out := map[flow]bool{}
	heard := map[flow]time.Duration{} // of connections, by the flow of the lower end
	// The newest SYN or SYN-ACK of connections that are not open, by the flow of the opener.
	waiting := map[flow]seen{}
	agreed := func(opener flow, c seen) bool {
		w, is := waiting[opener]
		if is && w.flags != c.flags && c.when < w.when+handshake {
			delete(waiting, opener)
			return true
		}
		waiting[opener] = c
		return false
	}
	connection := func(f flow) flow {
		if f.to.Compare(f.from) < 0 {
			return flow{f.to, f.from}
		}
		return f
	}
	age := func(now time.Duration) {
		for f := range out {
			if now >= heard[connection(f)]+time.Duration(m.p.Idle) {
				delete(out, f)
			}
		}
	}
	for _, c := range m.copies {
		age(c.when) // the law sees the copy before it forgets what is silent, but an end does not bring a flow back
		there, back := flow{c.from, c.to}, flow{c.to, c.from}
		known := out[there] || out[back]
		switch {
		case c.flags&fabric.FlagRST != 0:
			delete(out, there)
			delete(out, back)
		case c.flags&fabric.FlagSYN != 0 && c.flags&fabric.FlagACK != 0:
			if known = known || agreed(back, c); known {
				out[there], out[back] = true, true
			}
		case c.flags&fabric.FlagSYN != 0:
			if known = !known && agreed(there, c); known {
				out[there], out[back] = true, true
			}
		case c.flags&fabric.FlagFIN != 0:
			delete(out, there)
		}
		if known {
			heard[connection(there)] = c.when
		}
	}
	age(now)
	return out
}

// portOf returns the port of the newest SYN of an address; 0: none.
func (m *model) portOf(a netip.Addr) uint32 {
	for _, c := range slices.Backward(m.copies) {
		if c.from.Addr() == a && c.flags&fabric.FlagSYN != 0 && c.flags&fabric.FlagRST == 0 {
			return c.at
		}
	}
	return 0
}

// vmOf returns the VM that has an address, by the newest report that still holds.
func (m *model) vmOf(a netip.Addr) law.VM {
	for _, h := range slices.Backward(m.order) {
		for _, n := range m.vms[h] {
			if address(n) == a {
				return law.VM(n)
			}
		}
	}
	return 0
}

func (m *model) report(h law.Host, vms []int) {
	m.order = append(slices.DeleteFunc(m.order, func(o law.Host) bool { return o == h }), h)
	m.vms[h] = vms
	for o, all := range m.vms { // an address that moves does not come back when the new host loses it
		if o != h {
			m.vms[o] = slices.DeleteFunc(slices.Clone(all), func(n int) bool { return slices.Contains(vms, n) })
		}
	}
}

// want returns the window that each pair has once all updates were made.
func (m *model) want(now time.Duration) map[law.Pair]uint64 {
	count := map[uint32]uint64{}
	flows := m.flows(now)
	for f := range flows {
		count[m.portOf(f.to.Addr())]++
	}
	out := map[law.Pair]uint64{}
	for f := range flows {
		at, vm := m.portOf(f.to.Addr()), m.vmOf(f.from.Addr())
		if at == 0 || vm == 0 {
			continue
		}
		window := uint64((m.p.TargetFraction*float64(m.p.Buffer) + float64(m.p.Rate)/8*m.p.RTT.Std().Seconds()) / float64(count[at]))
		out[law.Pair{VM: vm, Peer: f.to.Addr()}] = max(window, uint64(m.p.MSS)+1)
	}
	return out
}

// Any order of SYNs, FINs, RSTs, lost copies and moves of VMs leaves each pair with a flow at a window within 2 % of its port's share.
// No pair gets more than its last grant says, and grants never end while there is a flow.
func TestLaw_EqualsModel(t *testing.T) {
	limited, moved := 0, 0
	property := func(r *rapid.T) {
		p := *Default()
		p.TargetFraction, p.Rate, p.Buffer, p.RTT = 0.5, 200e6, 125_000, 200e3
		p.Idle = law.Duration(rapid.IntRange(1, 20).Draw(r, "idle")) * 1e9
		p.Lease = law.Duration(rapid.IntRange(1, 5).Draw(r, "lease")) * 1e9
		l, err := New(p, 0)
		if err != nil {
			r.Fatal(err)
		}
		m := &model{p: p, vms: map[law.Host][]int{}}
		var now time.Duration
		got := map[law.Pair]law.Grant{}
		ends := map[law.Pair]time.Duration{}
		step := func(e law.Event) {
			for _, a := range l.Step(now, e, nil) {
				g := a.(law.Grant)
				got[g.Key.Pair], ends[g.Key.Pair] = g, now+g.Lease
			}
		}
		sleep := func(until time.Duration) {
			for w := l.Wake(); w > 0 && w <= until; w = l.Wake() {
				if w < now {
					r.Fatalf("at %v it wakes at %v", now, w)
				}
				now = w
				step(law.Tick{})
			}
			now = max(now, until)
		}
		for range rapid.IntRange(1, 60).Draw(r, "events") {
			switch rapid.IntRange(0, 9).Draw(r, "kind") {
			case 0:
				h := law.Host(rapid.IntRange(1, 3).Draw(r, "host"))
				var vms []int
				for n := 1; n <= 4; n++ {
					if rapid.Bool().Draw(r, "has") {
						vms = append(vms, n)
					}
				}
				m.report(h, vms)
				moved++
				if e := hostOf(h, vms); len(vms) > 0 || rapid.Bool().Draw(r, "empty") {
					step(e)
				} else {
					step(&inventory.HostLeft{At: h})
				}
			case 1:
				sleep(now + time.Duration(rapid.IntRange(0, 3000).Draw(r, "ms"))*ms)
			default:
				c := draw(r, now)
				m.copies = append(m.copies, c)
				step(event(c))
			}
			if !rapid.Bool().Draw(r, "settles") {
				continue
			}
			sleep(now + time.Duration(p.Update))
			want := m.want(now)
			for k, window := range want {
				g, ok := got[k]
				if !ok || ends[k] <= now || differs(g.Value, window) {
					r.Fatalf("at %v VM %d to %v has %d until %v, want %d", now, k.VM, k.Peer, g.Value, ends[k], window)
				}
			}
			limited += len(want)
			ours := 0
			for _, pr := range l.every {
				ours += pr.flows
			}
			if flows := len(m.flows(now)); ours != flows {
				r.Fatalf("%d flows count, want %d", ours, flows)
			}
			for _, port := range slices.Collect(maps.Values(l.ports)) {
				sum := 0
				for i, st := range port.stations {
					if st.n != i || st.port != port {
						r.Fatalf("station %v is at the wrong place", st.address)
					}
					sum += st.flows
				}
				if sum != port.flows {
					r.Fatalf("port %v: %d flows, its stations have %d", port.number, port.flows, sum)
				}
			}
		}
	}
	// A hundred trials each, with -short twenty.
	for n := 0; n == 0 || n < 50 && (limited < 200 || moved < 50); n++ {
		rapid.Check(t, property)
	}
	if limited < 200 || moved < 50 {
		t.Errorf("%d windows, %d reports of hosts: the test shows too little", limited, moved)
	}
}

func hostOf(h law.Host, vms []int) *inventory.Host {
	e := &inventory.Host{At: h}
	for _, n := range vms {
		e.VMs = append(e.VMs, inventory.VM{Number: law.VM(n), Addresses: []netip.Prefix{netip.PrefixFrom(address(n), 32)}})
	}
	return e
}

// draw returns a copy: of a few addresses and ports, so that connections meet.
func draw(r *rapid.T, now time.Duration) seen {
	a, b := rapid.IntRange(1, 5).Draw(r, "from"), rapid.IntRange(1, 5).Draw(r, "to")
	if a == b {
		b = a%5 + 1
	}
	client := uint16(1000 + rapid.IntRange(0, 2).Draw(r, "port"))
	c := seen{
		when: now, at: uint32(a), from: netip.AddrPortFrom(address(a), client), to: netip.AddrPortFrom(address(b), 80),
		flags: rapid.SampledFrom([]uint8{
			fabric.FlagSYN, fabric.FlagSYN | fabric.FlagACK, fabric.FlagSYN | fabric.FlagACK, fabric.FlagFIN | fabric.FlagACK, fabric.FlagRST,
		}).Draw(r, "flags"),
	}
	answers := rapid.Bool().Draw(r, "answers")
	if c.flags&fabric.FlagSYN != 0 {
		answers = c.flags&fabric.FlagACK != 0
	}
	if answers {
		c.from, c.to = netip.AddrPortFrom(c.from.Addr(), 80), netip.AddrPortFrom(c.to.Addr(), client)
	}
	if rapid.IntRange(0, 9).Draw(r, "elsewhere") == 0 { // it has moved
		c.at = uint32(rapid.IntRange(1, 7).Draw(r, "at"))
	}
	return c
}

func event(c seen) law.Event {
	kind := fabric.FIN
	switch {
	case c.flags&fabric.FlagRST != 0:
		kind = fabric.RST
	case c.flags&fabric.FlagSYN != 0:
		kind = fabric.SYN
	}
	t := fabric.Tuple{Proto: 6, Src: c.from.Addr().As4(), Dst: c.to.Addr().As4(), SrcPort: c.from.Port(), DstPort: c.to.Port()}
	return &fabric.PacketIn{At: law.Port{Switch: 1, N: c.at}, Kind: kind, Frame: fabric.AppendSegment(nil, fabric.MAC{}, fabric.MAC{}, t, c.flags)}
}
