package controller

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/bus/weirv1"
	"weir/controller/sflow"
	"weir/datapath/testnet"
	"weir/law"
	"weir/law/gcc"
	"weir/law/telemetry"
)

// kept keeps the grants of commands.
type kept struct {
	askedNothing
	grants []law.Grant
}

func (o *kept) Command(_ string, _ *weirv1.Origin, g []law.Grant) error {
	o.grants = append(o.grants, g...)
	return nil
}
func (*kept) Holds(string) (uint64, bool) { return 1, true }

// sampled is a controller with the law gcc, and host 7 with a VM that has an address. Its socket is in ns; nil: here.
func sampled(t *testing.T, ns *testnet.Namespace, vm netip.Addr, from netip.Addr) (*sflowLink, *kept) {
	t.Helper()
	params := gcc.Default()
	l, err := gcc.New(*params)
	if err != nil {
		t.Fatal(err)
	}
	core := newCore(newFence(nil, 1, silent), silent, namedLaw{name: "gcc", Law: l})
	a, bus := newAgents(core, silent), &kept{}
	core.agents, a.bus, a.link = a, bus, &busLink{nodes: newNodes(nil, 1, silent)}
	a.events(0, "h7", &weirv1.Events{
		Origin: &weirv1.Origin{Incarnation: 1, Sequence: 1, StampNs: 1}, Host: 7,
		Inventory: &weirv1.Inventory{Serial: 1, Parts: 1, Guests: []*weirv1.Guest{{Vm: 1, Addresses: []*weirv1.Range{weirv1.NewRange(netip.PrefixFrom(vm, 32))}}}},
	})
	r := &role{cfg: &Config{SFlow: &SFlow{Listen: "127.0.0.1:0", Interval: time.Second, Switches: []sflow.Switch{{Address: from, Number: 5}}}}, log: silent}
	var link *sflowLink
	listen := func() (err error) { link, err = r.listenSFlow(core); return err }
	if ns == nil {
		err = listen()
	} else {
		ns.Must(t, listen)
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { link.receive(); close(ended) }()
	t.Cleanup(func() { link.close(); <-ended })
	return link, bus
}

// Open vSwitch, which has no agent, samples packets with CE: the law sends the VM's host marks. Datagrams of others have no effect, and a
// switch that an agent has is the agent's.
func TestSFlow_OpenVSwitch(t *testing.T) {
	r := newRacks(t, 1, 0, 2)
	vm := netip.MustParseAddr("10.0.1.1")
	link, bus := sampled(t, r.fabric, vm, netip.MustParseAddr("127.0.0.1"))
	r.ofctl(t, "add-flow", "leaf1", "actions=NORMAL")
	r.Vsctl(t, "--", "--id=@s", "create", "sflow", "agent=lo", fmt.Sprintf("target=%q", link.conn.LocalAddr()), "sampling=1", "polling=1", "header=128", "--", "set", "bridge", "leaf1", "sflow=@s")
	from := r.hosts[0].echo
	raw, err := from.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, 3) })
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	testnet.Until(t, "marks of the VM come", func() bool {
		if _, err := from.WriteToUDP([]byte("marked"), &net.UDPAddr{IP: r.hosts[1].ip, Port: 9}); err != nil {
			t.Fatal(err)
		}
		link.read()
		return len(bus.grants) > 0
	})
	if g := bus.grants[0]; g.Kind != law.MarksGrant || g.Key.VM != 1 || g.Value == 0 || g.Value%telemetry.OneMark != 0 {
		t.Errorf("%+v", g)
	}
	testnet.Until(t, "counters come", func() bool { return link.receiver.Counts().Counters > 0 })
	if c := link.receiver.Counts(); c.Marked == 0 || len(c.Refused) > 0 {
		t.Errorf("%+v", c)
	}
	link.core.agents.events(0, "s5", &weirv1.Events{Origin: &weirv1.Origin{Incarnation: 1, Sequence: 1, StampNs: 1}, Switch: 5})
	testnet.Until(t, "an agent has the switch", func() bool {
		_, _ = from.WriteToUDP([]byte("marked"), &net.UDPAddr{IP: r.hosts[1].ip, Port: 9})
		link.read()
		return link.receiver.Counts().Refused["claimed"] > 0
	})
}

// sample is a datagram with one of 100 packets, from 10.0.1.1 with CE.
const sample = "0000000500000001c000020b000000000000000100000001000000010000000100000064000000010000000100000064" +
	"000003e800000000000000010000000900000001000000010000003c00000001000005dc000000040000002a00000000" +
	"000000000000000008004503002800000000401100000a0001010a09090900010002001400000000"

// The controller takes datagrams and passes what came to the laws at its interval. Datagrams of senders that are not in the file are counted.
func TestSFlow_Loopback(t *testing.T) {
	link, got := sampled(t, nil, netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("127.0.0.1"))
	ctx, cancel := context.WithCancel(t.Context())
	link.every = time.Millisecond
	ended := make(chan struct{})
	go func() { link.run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	datagram, err := hex.DecodeString(sample)
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
		conn, err := (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}).Dial("udp", link.conn.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write(datagram); err != nil {
			t.Fatal(err)
		}
	}
	testnet.Until(t, "the law's marks go to the host, and a sender is refused", func() bool {
		select {
		case f := <-link.core.ask: // this is the laws' goroutine
			f()
		default:
		}
		return len(got.grants) > 0 && link.status().Refused["sender"] == 1
	})
	if g := got.grants; len(g) != 1 || g[0].Key.VM != 1 || g[0].Value != 100*telemetry.OneMark {
		t.Errorf("%+v", g)
	}
	if c := link.status(); c.Datagrams != 1 || c.Marked != 1 || len(c.Refused) != 1 {
		t.Errorf("%+v", c)
	}
}

// Faults of the key sflow are refused, with its name.
func TestSFlow_File(t *testing.T) {
	const bus = "bus: {listen: 127.0.0.1:1, server_keys: a, keys: b}\n"
	for text, says := range map[string]string{
		"sflow: {listen: 127.0.0.1:1, switches: [{address: 192.0.2.1, switch: 5}]}":                                        "the laws' rates would reach nobody",
		bus + "sflow: {listen: here, switches: [{address: 192.0.2.1, switch: 5}]}":                                         "sflow.listen: \"here\" is not an address with a port",
		bus + "sflow: {listen: 127.0.0.1:1, interval: 1us, switches: [{address: 192.0.2.1, switch: 5}]}":                   "sflow.interval: 1µs is out of range",
		bus + "sflow: {listen: 127.0.0.1:1, switches: [{address: s1, switch: 5}]}":                                         "sflow.switches: \"s1\" is not an address",
		bus + "sflow: {listen: 127.0.0.1:1, switches: [{address: 192.0.2.1, switch: 5}, {address: 192.0.2.2, switch: 5}]}": "switch 5 is there twice",
		bus + "sflow: {listen: 127.0.0.1:1, switches: [{address: 192.0.2.1, switch: 5}, {address: 192.0.2.1, switch: 6}]}": "192.0.2.1 or switch 6 is there twice",
		bus + "sflow: {listen: 127.0.0.1:1, switches: []}":                                                                 "sflow.switches",
	} {
		_, err := kindController().Parse("c.yaml", []byte("kind: Controller\n"+text+"\n"))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A reading says how long it took, also if the laws' goroutine was late: a law divides by that time.
func TestSFlow_SaysHowLongItTook(t *testing.T) {
	var took []time.Duration
	l := lawFunc(func(e law.Event) {
		if r, is := e.(*telemetry.Telemetry); is {
			took = append(took, r.T)
		}
	})
	core := newCore(newFence(nil, 1, silent), silent, namedLaw{name: "notes", Law: l})
	core.agents = newAgents(core, silent)
	at := core.begun
	core.clock = func() time.Time { return at }
	from := netip.MustParseAddr("192.0.2.1")
	link := &sflowLink{receiver: sflow.New([]sflow.Switch{{Address: from, Number: 5}}, silent), every: 100 * time.Millisecond, core: core}
	datagram, err := hex.DecodeString(sample)
	if err != nil {
		t.Fatal(err)
	}
	for i, wait := range []time.Duration{100 * time.Millisecond, 3 * time.Second} {
		datagram[19]++ // its sequence number
		link.receiver.Take(from, datagram)
		at = at.Add(wait)
		link.read()
		if len(took) != i+1 || took[i] != wait {
			t.Fatalf("after %v the law gets %v; counts: %+v", wait, took, link.receiver.Counts())
		}
	}
}

// lawFunc is a law that notes events.
type lawFunc func(law.Event)

func (lawFunc) Wake() time.Duration { return 0 }

func (f lawFunc) Step(_ time.Duration, e law.Event, out []law.Action) []law.Action {
	f(e)
	return out
}
