//go:build cgo

package laws

import (
	"fmt"

	"weir/experiment"
	"weir/law"
	"weir/law/hygenicc"
	"weir/law/telemetry"
	"weir/sim/control"
	"weir/sim/event"
	"weir/sim/network"
)

// messageBytes is a message with marks: an IPv4 header in the smallest frame, without its checksum.
const messageBytes = 60

// HyGenICC returns the law hygenicc. It has no controller: hosts send one another marks in the network, where these wait in queues, and
// can be lost.
func HyGenICC() Law {
	spec := hygenicc.Spec()
	return inC(Law{
		Check: func(r *experiment.Run, name string) error {
			_, err := spec.New(law.Uplink, law.Pointer(r.Params[name]), nil)
			return err
		},
		Put: func(n *network.Network, r *experiment.Run, name string) (Attached, error) {
			params, err := law.Params[hygenicc.Config](r.Params, name)
			if err != nil {
				return nil, err
			}
			h := &hygeniccHosts{
				controlled: controlled{net: n, spec: &spec, every: params.Interval, sites: map[law.VM]*control.Site{}},
				params:     params, receivers: map[network.NodeID]*hygeniccReceiver{}, owes: map[[2]network.NodeID]uint64{},
			}
			return h, h.put(r, name)
		},
	})
}

// hygeniccHosts is the law at the hosts of a network. It stands between their VMs' enforcement and the network.
type hygeniccHosts struct {
	controlled
	params    hygenicc.Config
	receivers map[network.NodeID]*hygeniccReceiver
	owes      map[[2]network.NodeID]uint64 // bits that packets of the first host to the second must carry
	counts    hygeniccCounts
}

type hygeniccCounts struct {
	messages, bits uint64 // that left
	forged         uint64 // of VMs: messages dropped, bits cleared
}

// hygeniccReceiver is the receiving half of one host.
type hygeniccReceiver struct {
	h    *hygeniccHosts
	host network.NodeID
	site *control.Site
	came telemetry.Came
}

func (h *hygeniccHosts) put(r *experiment.Run, name string) error {
	if _, err := h.hypervisors(r, name); err != nil {
		return err
	}
	for _, u := range h.uplinks {
		for _, vm := range u.has.VMs {
			host := hostOf(vm.Addresses[0].Addr())
			l, err := h.spec.New(law.VMPort, &h.params, nil)
			if err != nil {
				return err
			}
			rec := &hygeniccReceiver{h: h, host: host}
			if rec.site, err = h.messenger.Add(control.SiteOptions{Name: "receiver " + h.net.Name(host), Law: l, Enforcer: rec}); err != nil {
				return err
			}
			h.receivers[host] = rec
		}
	}
	h.net.SetGuards(append(h.net.Guards(), h)...)
	h.begin()
	return nil
}

// Enforce sends marks back to their source.
func (c *hygeniccReceiver) Enforce(_ event.Time, a law.Action) error {
	g, ok := a.(law.Grant)
	if !ok || g.Kind != law.MarksGrant || !g.Key.Peer.IsValid() {
		return fmt.Errorf("%+v is no message for a source of marks", a)
	}
	h, source := c.h, hostOf(g.Key.Peer)
	marks := g.Value / telemetry.OneMark
	if h.params.Feedback == hygenicc.Bit {
		h.owes[[2]network.NodeID{c.host, source}] += marks
		return nil
	}
	pk := h.net.NewPacket()
	pk.SetEnds(c.host, source, 0, 0)
	pk.SetProto(network.MarkMessage)
	pk.SetHash(network.FlowHash(c.host, source, 0, 0, network.MarkMessage))
	pk.SetBytes(messageBytes)
	pk.SetMarked(uint32(min(marks, 0xffff)))
	h.counts.messages++
	h.net.InjectBehind(c.host, pk) // a rate of the VM does not limit its hypervisor
	return nil
}

// Out drops messages that a VM forges, and has packets carry the bits that are owed.
func (h *hygeniccHosts) Out(host network.NodeID, pk *network.Packet, _ event.Time) network.Verdict {
	if pk.Proto() == network.MarkMessage {
		h.counts.forged++
		return network.Drop
	}
	if pk.IPFlag() {
		h.counts.forged++
		pk.SetIPFlag(false)
	}
	if len(h.owes) == 0 {
		return network.Pass
	}
	pair := [2]network.NodeID{host, pk.Dst()}
	if n := h.owes[pair]; n > 0 {
		pk.SetIPFlag(true)
		h.counts.bits++
		if h.owes[pair]--; n == 1 {
			delete(h.owes, pair)
		}
	}
	return network.Pass
}

// In takes the marks that came back, and counts the marks of packets. Enforcement behind it clears them.
func (h *hygeniccHosts) In(host network.NodeID, pk *network.Packet, _ event.Time) network.Verdict {
	c := h.receivers[host]
	if c == nil {
		return network.Pass
	}
	if pk.Proto() == network.MarkMessage {
		h.heard(host, uint64(pk.Marked()))
		return network.Drop
	}
	if pk.IPFlag() {
		pk.SetIPFlag(false)
		h.heard(host, 1)
	}
	if pk.ECN() == network.CE {
		c.came = telemetry.Came{VM: vmOf(host), Source: HostAddress(pk.Src()), Marks: 1}
		c.site.Event(&c.came)
	}
	return network.Pass
}

// heard passes the law at a VM's host the marks that came back.
func (h *hygeniccHosts) heard(host network.NodeID, marks uint64) {
	vm := vmOf(host)
	h.sites[vm].Event(&telemetry.Marked{VM: vm, Marks: marks * telemetry.OneMark})
}

// Tally counts what hosts sent one another.
func (h *hygeniccHosts) Tally() law.Tally {
	t := law.Tally{"messages": h.counts.messages, "bits": h.counts.bits, "forged": h.counts.forged}
	if err := h.messenger.Err(); err != nil {
		t["failed"] = 1
	}
	return t
}
