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

// ovs is a separate Open vSwitch for every switch: two daemons in the switch's namespace, with a run directory of
// the lab. It does not touch the system's Open vSwitch.
type ovs struct {
	// kernel means that openvswitch.ko forwards; otherwise ovs-vswitchd forwards in user space, and reads and
	// sends frames with packet sockets.
	kernel bool
	// controller is the address of the controller that commands the switches, in the management network. Invalid:
	// they learn and forward by themselves.
	controller netip.AddrPort
	turn       turn
}

// ovsPrograms are the programs that this machine must have.
var ovsPrograms = []string{"ovsdb-tool", "ovsdb-server", "ovs-vsctl", "ovs-vswitchd", "ovs-ofctl"}

// newOVS selects the datapath. Probing for the kernel's loads its module if there is one.
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

// check returns an error with what this machine lacks, and its package.
func (o ovs) check(p *plan) error {
	if p.paths && !o.controller.IsValid() {
		return errors.New("topology.switch ovs: this network has several paths, so an Open vSwitch needs a controller, which this program does not have: use bridge, or weir")
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
		return fmt.Errorf("topology.switch ovs: a cgroup is needed to find its processes again: %w", err)
	}
	return nil
}

// finishChecksums: trap 1. A packet socket does not calculate a checksum that is left to the hardware: the far
// host drops the packet, and no TCP connection can open. So hosts calculate checksums in software.
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

// configuration returns the switch as arguments of ovs-vsctl, all in one transaction. OpenFlow port numbers are
// those of the devices; the datapath id is the number of the switch.
func (o ovs) configuration(l *Lab, n *node) []string {
	datapath := map[bool]string{false: "netdev", true: "system"}[o.kernel]
	args := []string{
		"init",
		// One thread each: a lab has many switches, and these threads only handle new flows.
		"--", "set", "Open_vSwitch", ".", "other_config:n-handler-threads=1", "other_config:n-revalidator-threads=1",
		"--", "add-br", bridgeName,
		"--", "set", "Bridge", bridgeName, "datapath_type=" + datapath, "fail_mode=" + o.failMode(),
		"other_config:datapath-id=" + n.datapath(), fmt.Sprintf("other_config:hwaddr=%q", n.bridgeMAC()),
		// Disables its rules for a controller on the data ports: the lab's is in the management network.
		"other_config:disable-in-band=true",
		// Trap 3: Open vSwitch owns the queues of its ports. At add-port, and at each start, it removes a TBF,
		// unless its type of QoS is linux-noop. Ports get their queues after this, too.
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
			// It retries within a second, not within eight.
			"--", "set", "Controller", bridgeName, "connection_mode=out-of-band", "max_backoff=1000")
	}
	return args
}

func (o ovs) failMode() string {
	if o.controller.IsValid() {
		return "secure" // without its controller it keeps its flows and adds none
	}
	return "standalone"
}

// startForwarding starts ovs-vswitchd and sets what a restart loses.
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

// knowGuests adds a permanent entry for every guest's port. A switch that had to learn them would flood the first
// frame to each into other queues, and again after a guest was silent for five minutes.
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
				return fmt.Errorf("add a forwarding entry for %s (needs Open vSwitch 2.16 or later): %w", guest.name, err)
			}
		}
	}
	return nil
}

// createSendSocket makes the switch send one frame. With the first frame, ovs-vswitchd opens the one socket that
// it uses for all ports. No bridge forwards the address, and no host knows the protocol.
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

// RestartSwitch ends the forwarding daemon of an Open vSwitch and starts it again, as an upgrade would. Trap 4:
// its flows are lost. Without a controller it forwards as before when this returns; with one it forwards nothing
// until the controller sets it up.
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

// lastLine returns the last line of a program's output.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
