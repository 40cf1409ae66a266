package lab

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"

	"weir/experiment"
)

// ovs is an Open vSwitch of its own for every switch: two daemons that live in the switch's namespace, with a
// run directory of the lab's. The system's Open vSwitch, if there is one, is not touched.
type ovs struct {
	// kernel says that openvswitch.ko forwards; otherwise ovs-vswitchd does, in user space, and reads and sends
	// frames by packet sockets.
	kernel bool
	// controller is who alone tells the switches what to forward, in the management network. Invalid: they
	// learn and forward by themselves.
	controller netip.AddrPort
	turn       turn
}

// ovsPrograms are what must be on this machine.
var ovsPrograms = []string{"ovsdb-tool", "ovsdb-server", "ovs-vsctl", "ovs-vswitchd", "ovs-ofctl"}

// newOVS looks which datapath there is. Asking for the kernel's loads its module where there is one.
func newOVS(p *plan, controller netip.AddrPort, scale float64) ovs {
	_, err := netlink.GenlFamilyGet("ovs_datapath")
	switches := 0
	for _, n := range p.nodes {
		if n.kind == experiment.Switch {
			switches++
		}
	}
	return ovs{kernel: err == nil, controller: controller, turn: turnOf(scale, switches, runtime.NumCPU())}
}

// check names what this machine lacks, and its package.
func (o ovs) check(p *plan) error {
	if p.paths && !o.controller.IsValid() {
		return errors.New("topology.switch ovs: this network has several paths, for which an Open vSwitch needs a controller, and this program brings none: use bridge, or weir")
	}
	for _, program := range ovsPrograms {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("topology.switch ovs needs Open vSwitch 2.16 or later: run 'apt-get install openvswitch-switch', or use bridge: %w", err)
		}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil && !o.kernel {
		return missing("tap devices, which Open vSwitch in user space needs", "TUN", "tun", err)
	}
	if _, err := cgroup2Root(); err != nil {
		return fmt.Errorf("topology.switch ovs: its processes are found again by their control group: %w", err)
	}
	return nil
}

// finishChecksums: trap 1. What waits for the hardware to write its checksum is not written by a packet socket:
// the far host drops it, and no TCP connection ever comes to be. So hosts finish checksums themselves.
func (o ovs) finishChecksums() bool { return !o.kernel }

func (o ovs) setUp(l *Lab, _ *netlink.Handle, n *node) error {
	d, err := l.ovsDaemons(n)
	if err != nil {
		return err
	}
	if err := d.startDatabase(); err != nil {
		return err
	}
	if err := d.vsctl(o.configuration(l, n)...); err != nil {
		return err
	}
	if !o.kernel {
		if err := o.hideRefusals(l, n); err != nil {
			return err
		}
	}
	return o.startForwarding(l, n, d)
}

// configuration is the switch as arguments of ovs-vsctl, all in one transaction. OpenFlow numbers ports as
// their devices do; the datapath id is the number of the switch.
func (o ovs) configuration(l *Lab, n *node) []string {
	datapath := map[bool]string{false: "netdev", true: "system"}[o.kernel]
	args := []string{
		"init",
		// One thread each: a lab has many switches, and these only answer for flows not seen before.
		"--", "set", "Open_vSwitch", ".", "other_config:n-handler-threads=1", "other_config:n-revalidator-threads=1",
		"--", "add-br", bridgeName,
		"--", "set", "Bridge", bridgeName, "datapath_type=" + datapath, "fail_mode=" + o.failMode(),
		"other_config:datapath-id=" + n.datapath(), fmt.Sprintf("other_config:hwaddr=%q", n.bridgeMAC()),
		// Its own rules for reaching a controller by the data ports: ours is in the management network.
		"other_config:disable-in-band=true",
		// Trap 3: Open vSwitch owns the queues of its ports. At add-port, and at each start, it removes a TBF,
		// unless it is told that there is nothing for it to do. Ports get theirs after this, too.
		"--", "--id=@none", "create", "QoS", "type=linux-noop",
	}
	for i, p := range n.ports {
		args = append(args, "--", "add-port", bridgeName, p.ifname,
			"--", "set", "Interface", p.ifname, fmt.Sprintf("ofport_request=%d", ofPort(i)),
			"--", "set", "Port", p.ifname, "qos=@none")
	}
	if o.controller.IsValid() {
		args = append(args, "--", "set-ssl",
			l.claim.certificateFile(n.name+".key"), l.claim.certificateFile(n.name+".pem"), l.claim.certificateFile("ca.pem"),
			"--", "set-controller", bridgeName, "ssl:"+o.controller.String(),
			// It tries again within a second, not within eight.
			"--", "set", "Controller", bridgeName, "connection_mode=out-of-band", "max_backoff=1000")
	}
	return args
}

func (o ovs) failMode() string {
	if o.controller.IsValid() {
		return "secure" // without its controller it forwards what it was told, and no more
	}
	return "standalone"
}

// startForwarding starts ovs-vswitchd and makes good what does not outlive it.
func (o ovs) startForwarding(l *Lab, n *node, d *ovsDaemons) error {
	if err := d.startForwarder(); err != nil {
		return err
	}
	if !o.kernel {
		if err := errors.Join(d.preferForwarder(o.turn), d.widenSockets(n)); err != nil {
			return err
		}
	}
	if o.controller.IsValid() {
		return nil
	}
	return d.knowGuests(n, l.plan)
}

// knowGuests enters every guest for its port for good: a switch that had to learn them would flood the first
// frame to each, into queues where it does not belong, and again when a guest was silent for five minutes.
func (d *ovsDaemons) knowGuests(n *node, p *plan) error {
	control, err := d.dial(forwarder)
	if err != nil {
		return err
	}
	defer control.close()
	towards := p.towards(n)
	for _, guest := range p.guests() {
		if port := towards[guest]; len(port) > 0 {
			const vlan = "0"
			if _, err := control.call("fdb/add", bridgeName, port[0].ifname, vlan, guest.ports[0].mac.String()); err != nil {
				return fmt.Errorf("enter %s (Open vSwitch 2.16 or later): %w", guest.name, err)
			}
		}
	}
	return nil
}

// createSendSocket has the switch send one frame. The one socket by which ovs-vswitchd sends to all ports comes
// to be with the first. The address is one that no bridge forwards, and no host knows the protocol.
func (d *ovsDaemons) createSendSocket(n *node) error {
	if len(n.ports) == 0 {
		return nil
	}
	frame := make([]byte, 60)
	copy(frame, []byte{0x01, 0x80, 0xc2, 0, 0, 0x0e})
	copy(frame[6:], n.bridgeMAC())
	copy(frame[12:], []byte{0x88, 0xb5}) // IEEE 802: for local experiments
	return d.run("ovs-ofctl", "packet-out", "unix:"+d.file(bridgeName+".mgmt"),
		fmt.Sprintf("in_port=LOCAL packet=%s actions=output:%d", hex.EncodeToString(frame), 1))
}

// RestartSwitch ends the forwarding daemon of a switch that is an Open vSwitch and starts it again, as an upgrade
// would. Trap 4: its flows are gone. Without a controller it forwards as before when this returns; with one it
// forwards nothing until it is told to.
func (l *Lab) RestartSwitch(node string) error {
	o, ok := l.fabric.(ovs)
	n := l.plan.byName[node]
	if !ok || n == nil || n.kind != experiment.Switch {
		return fmt.Errorf("lab %s has no Open vSwitch %q", l.claim.Name, node)
	}
	return l.Enter(node, func() error {
		d, err := l.ovsDaemons(n)
		if err != nil {
			return err
		}
		return errors.Join(d.endForwarder(), o.startForwarding(l, n, d))
	})
}

// lastLine is the end of a program's words.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
