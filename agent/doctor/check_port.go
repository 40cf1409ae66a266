package doctor

import (
	"fmt"
	"slices"
	"strings"

	"weir/datapath/attach"
	"weir/law"
)

// port checks one chosen device.
func (j *judge) port(d *Device) {
	at := j.place(d)
	n := Finding{Area: AreaPorts, Check: "port.role", Subject: d.Name, Level: OK, Text: j.describe(d, at), port: d.Name}
	if !at.attach {
		n.Level, n.Remedy = at.level, "name in its place: "+at.instead
		if at.level != Note {
			n.bars = attaching
		}
		j.add(n)
		return
	}
	j.ports = append(j.ports, d)
	j.add(n)
	if !d.Up || !d.Carrier {
		what := "down"
		if d.Up {
			what = "up without a carrier"
		}
		j.add(Finding{
			Area: AreaPorts, Check: "port.link", Subject: d.Name, Level: Note, port: d.Name, Text: what + ": its speed and queue may be others once it is up",
			Remedy: "ip link set " + shell(d.Name) + " up, and look again",
		})
	}
	j.queue(d)
	j.offloads(d)
	j.hardware(d)
}

// describe returns a description of a device in one line.
func (j *judge) describe(d *Device, at place) string {
	parts := []string{at.role}
	switch {
	case d.Driver != "" && d.Bus != "":
		parts = append(parts, "driver "+d.Driver+" at "+d.Bus)
	case d.Driver != "":
		parts = append(parts, "driver "+d.Driver)
	case d.Kind != "":
		parts = append(parts, d.Kind)
	}
	if d.SpeedMbit > 0 {
		parts = append(parts, speed(d).String()+"/s")
	} else {
		parts = append(parts, "speed unknown")
	}
	if d.TxQueues > 0 {
		parts = append(parts, fmt.Sprintf("queues %d out, %d in", d.TxQueues, d.RxQueues))
	}
	parts = append(parts, fmt.Sprintf("MTU %d", d.MTU))
	if d.Alias != "" {
		parts = append(parts, fmt.Sprintf("called %q", d.Alias))
	}
	return strings.Join(parts, ", ")
}

func speed(d *Device) law.Rate { return law.Rate(int64(d.SpeedMbit) * 1e6) }

// keepsQueue reports whether the root queue discipline of this kind keeps a length that Weir can read.
func keepsQueue(kind string) bool {
	return kind != "noop" && kind != "" && attach.CheckQueue("", kind) == nil
}

// shapeRate returns the rate to shape a port to, as text. It is below the line's rate, so that the queue is in the shaper and not in
// the NIC.
func shapeRate(d *Device) string {
	if d.SpeedMbit <= 0 {
		return "RATE"
	}
	return law.Rate(int64(d.SpeedMbit) * 980_000).String()
}

// queue checks the root queue discipline: whether weir switch would accept it, if that is known.
func (j *judge) queue(d *Device) {
	q, v := d.Root, d.Verdict
	n := Finding{Area: AreaPorts, Check: "port.queue", Subject: d.Name, Level: OK, port: d.Name}
	tbf := fmt.Sprintf("tc qdisc replace dev %s root tbf rate %s burst %s limit 1mb", shell(d.Name), shapeRate(d), tcBurst(d))
	switch {
	case v != nil && v.Refusal == "":
		n.Text = q.Kind + " keeps the queue"
		switch {
		case v.ShapeBits > 0:
			n.Text = "will have a shaper of Weir's own"
			if q.Ours {
				n.Text = "Weir's own shaper (shape) keeps the queue"
			}
		case q.Ours:
			n.Text = "Weir's own shaper (shape) keeps the queue"
		}
		n.Text += fmt.Sprintf(": %v/s, buffer %s, target %s", law.Rate(v.RateBits), size(v.BufferBytes), size(v.TargetBytes))
		j.add(n)
		j.shaper(d)
		if v.ShapeBits > 0 {
			j.oneLock(d)
		}
		return
	case v != nil && (q.Kind == "tbf" || q.Kind == "htb" || j.o.Config != nil):
		n.Level, n.asks = Problem, queueing
		n.Text = "weir switch would not take it: " + strings.TrimPrefix(v.Refusal, "port "+d.Name+": ")
		switch {
		case keepsQueue(q.Kind):
			n.Remedy = "give rate and buffer of the port in the configuration; of htb: a default class"
		case q.Default:
			n.Remedy = "shape: " + shapeRate(d) + " for this port in the configuration"
		default:
			n.Remedy = "if nobody needs what is there: " + tbf
		}
		j.add(n)
		return
	case v == nil && keepsQueue(q.Kind):
		n.Level, n.hides = Note, queueing
		n.Text = q.Kind + " keeps its queue; whether weir switch would accept it is not known"
	case keepsQueue(q.Kind):
		n.Level, n.asks = Problem, queueing
		n.Text = fmt.Sprintf("%s keeps its queue, but has no rate%s", q.Kind, ownLaw(q.Kind))
		n.Remedy = "give rate and buffer of the port in the configuration, or a shaper: " + tbf
	default:
		n.Level, n.asks = Problem, queueing
		n.Text = why(d)
		n.Remedy = "shape: " + shapeRate(d) + " for this port in the configuration of weir switch"
		if !q.Default {
			n.Text += "; it was put there by somebody, so Weir does not replace it"
			n.Remedy = "if nobody needs it: " + tbf
		}
	}
	j.add(n)
	j.oneLock(d)
}

// oneLock warns of a shaper in front of a NIC with many queues.
func (j *judge) oneLock(d *Device) {
	if d.TxQueues <= 1 {
		return
	}
	j.add(Finding{
		Area: AreaPorts, Check: "port.one_lock", Subject: d.Name, Level: Note, port: d.Name,
		Text:   fmt.Sprintf("a shaper stands before all %s of the device: CPUs that send meet at its one lock%s", plural(d.TxQueues, "send queue"), xps(d)),
		Remedy: "watch softirq time under load; where one lock is too little, leave the port out",
	})
}

func xps(d *Device) string {
	if d.XPS == 0 {
		return ""
	}
	return fmt.Sprintf(" (CPUs are mapped to %d of the queues, which then serves the NIC alone)", d.XPS)
}

func why(d *Device) string {
	switch d.Root.Kind {
	case "mq", "mqprio":
		text := d.Root.Kind + " has a queue for each of the device's, and no length of its own"
		if len(d.Children) > 0 {
			text += " (" + some(slices.Compact(slices.Sorted(slices.Values(d.Children)))) + " below)"
		}
		return text
	case "noqueue", "noop", "":
		return "no queue at all: packets go straight to the device"
	}
	return d.Root.Kind + " keeps its length for each CPU, where no program can read it"
}

// ownLaw describes queue disciplines that control queues themselves.
func ownLaw(kind string) string {
	switch kind {
	case "fq_codel", "codel", "fq_pie", "pie", "red", "cake", "sfb", "choke", "gred":
		return ", and drops or marks by a law of its own"
	case "fq":
		return ", and paces each flow of this host"
	}
	return ""
}

// tcBurst is a token bucket's depth that a super-packet fits in at ease: a millisecond at the rate.
func tcBurst(d *Device) string {
	bytes := max(int64(d.SpeedMbit)*1e6/8/1000, int64(d.MTU)*10, 65536)
	return fmt.Sprintf("%dkb", (bytes+1023)/1024)
}

const ethernetHeader = 14

// shaper judges the figures of a port that weir switch would take.
func (j *judge) shaper(d *Device) {
	q, v := d.Root, d.Verdict
	add := func(check string, level Level, text, remedy string) {
		n := Finding{Area: AreaPorts, Check: check, Subject: d.Name, Level: level, Text: text, Remedy: remedy, port: d.Name}
		if level == Problem && check != "port.shape_left" {
			n.asks = queueing
		}
		j.add(n)
	}
	change := "tc qdisc change dev " + shell(d.Name) + " root tbf ..."
	if q.Bursts > 0 && int(q.Bursts) < d.MTU+ethernetHeader {
		add("port.burst", Problem, fmt.Sprintf("its bucket of %v is smaller than a packet (MTU %d): such packets are all dropped", size(q.Bursts), d.MTU),
			change+" burst "+tcBurst(d))
	}
	if d.SpeedMbit > 0 && v.RateBits >= uint64(d.SpeedMbit)*1e6 {
		add("port.shaped_above_speed", Problem, fmt.Sprintf("its shaper lets through %v/s, the link carries %v/s: the queue stands in the NIC, where nothing sees it", law.Rate(v.RateBits), speed(d)),
			change+" rate "+shapeRate(d)+", or shape: "+shapeRate(d)+" in the configuration")
	}
	const headers = 40 // of IPv4 and TCP
	segment := uint64(max(d.MTU-headers, 500))
	if flows := v.PipeBytes / segment; flows < 2 {
		add("port.buffer", Problem, fmt.Sprintf("a buffer of %s: its target of %s and the path hold less than two segments of %d bytes, below which no window goes", size(v.BufferBytes), size(v.TargetBytes), segment),
			change+" limit of 100 packets or more, or a larger target_fraction")
	} else {
		add("port.buffer", OK, fmt.Sprintf("up to %d flows at once keep the queue at its target; more make it longer by a segment each", flows), "")
	}
	if d.GSOMax > 0 && d.Offloads["tx-tcp-segmentation"] && uint64(d.GSOMax) > v.TargetBytes {
		add("port.gso", Note, fmt.Sprintf("super-packets of up to %s pass the queue, whose target is %s: what this host sends itself comes in lumps longer than the target", size(d.GSOMax), size(v.TargetBytes)),
			"where hosts' own traffic matters: ip link set "+shell(d.Name)+" gso_max_size 16384")
	}
	if q.Ours && !j.alive(d.Name) {
		add("port.shape_left", Problem, "shaped by a weir switch that is no more: the port is slower than it could be, for nothing",
			"start weir switch again, which takes it over; or weir switch --purge --name NAME, which puts back what stood there")
	}
}

// offloads judges what the NIC does to packets before programs see them.
func (j *judge) offloads(d *Device) {
	if d.Offloads == nil {
		return
	}
	var on []string
	for _, o := range []struct{ feature, name string }{
		{"tx-generic-segmentation", "GSO"}, {"tx-tcp-segmentation", "TSO"}, {"rx-gro", "GRO"}, {"rx-gro-hw", "GRO in the NIC"},
		{"rx-lro", "LRO"}, {"hw-tc-offload", "tc in the NIC"},
	} {
		if d.Offloads[o.feature] {
			on = append(on, o.name)
		}
	}
	text := "none that matters"
	if len(on) > 0 {
		text = strings.Join(on, ", ") + " on; packets that stand for several are counted as those"
	}
	j.add(Finding{Area: AreaPorts, Check: "port.offloads", Subject: d.Name, Level: OK, Text: "offloads: " + text, port: d.Name})
	if d.Offloads["rx-lro"] {
		n := Finding{
			Area: AreaPorts, Check: "port.lro", Subject: d.Name, Level: Note, port: d.Name,
			Text: "LRO merges received segments for good: acknowledgements among them are lost to programs", Remedy: "ethtool -K " + shell(d.Name) + " lro off",
		}
		if d.Master != "" || j.f.TCP.Forwarding {
			n.Level, n.asks = Problem, queueing
			n.Text += ", and merged packets cannot be forwarded"
		}
		j.add(n)
	}
	if d.Offloads["esp-hw-offload"] && j.f.TCP.SAs > 0 {
		j.add(Finding{
			Area: AreaPorts, Check: "port.esp", Subject: d.Name, Level: Note, port: d.Name, Text: "the NIC encrypts IPsec itself: programs may see what it then hides",
			Remedy: "scope the switch to prefixes that are not encrypted",
		})
	}
}

// hardware checks for forwarding past the kernel on this device.
func (j *judge) hardware(d *Device) {
	switch {
	case d.Represents:
		j.add(Finding{
			Area: AreaPorts, Check: "port.representor", Subject: d.Name, Level: Note, port: d.Name,
			Text: "stands for a function of the NIC: its packets pass here as long as the NIC has no rule for them", Remedy: "see 'other programs' for rules in the NIC; ethtool -K " + shell(d.Name) + " hw-tc-offload off keeps it so",
		})
	case d.SwitchID != "" && d.MaxVFs == 0 && !d.IsVF:
		n := Finding{
			Area: AreaPorts, Check: "port.chip", Subject: d.Name, Level: Note, port: d.Name, Text: "port of a switch chip (" + d.SwitchID + "): packets that the chip forwards itself never reach the kernel",
			Remedy: "keep it out of bridges that the chip takes over",
		}
		if d.MasterKind == "bridge" || d.MasterKind == "openvswitch" || j.f.TCP.Forwarding {
			n.Level, n.bars = Blocked, attaching
			n.Text = "off: the switch chip (" + d.SwitchID + ") forwards between this port and its others, the kernel sees almost nothing of it"
			n.Remedy = "Weir cannot hold this traffic here; put it at the hosts' uplinks or hypervisors"
		}
		j.add(n)
	case d.VFs > 0:
		j.add(Finding{
			Area: AreaPorts, Check: "port.sriov", Subject: d.Name, Level: Blocked, port: d.Name,
			Text:   fmt.Sprintf("off for %s of SR-IOV: the NIC switches their packets, past the kernel", plural(d.VFs, "virtual function")),
			Remedy: "give VMs taps in a bridge, or limit their flows at the next switch; flows through this device itself are limited",
		})
	case d.MaxVFs > 0:
		j.add(Finding{Area: AreaPorts, Check: "port.sriov", Subject: d.Name, Level: OK, port: d.Name, Text: fmt.Sprintf("SR-IOV: none of %s in use", plural(d.MaxVFs, "virtual function"))})
	}
	if d.IsVF {
		j.add(Finding{
			Area: AreaPorts, Check: "port.vf", Subject: d.Name, Level: Note, port: d.Name, Text: "a virtual function: other functions share its link, and the queue that grows may be in the NIC",
			Remedy: "shape it below the rate that it surely gets",
		})
	}
}
