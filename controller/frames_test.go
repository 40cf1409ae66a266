package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/bus/inband"
	"weir/bus/weirv1"
	"weir/datapath/testnet"
	"weir/internal/testroot"
)

// askedNothing is a bus without agents.
type askedNothing struct{ commander }

func (askedNothing) Ask(string) {}

// Grants go in frames to agents that report an address for them, as long as they do.
func TestFrames_FollowInventories(t *testing.T) {
	testroot.Need(t, "namespaces")
	ns := testnet.NewNamespace(t)
	var frames *inband.Messenger
	ns.Must(t, func() (err error) {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "d0"}}); err != nil {
			return err
		}
		frames, err = inband.NewMessenger("d0", inband.Ethernet, inband.Key{}, nil)
		return err
	})
	defer frames.Close()
	core := newCore(newFence(nil, 1, silent), silent)
	a := newAgents(core, silent)
	core.agents, a.bus, a.link = a, askedNothing{}, &busLink{nodes: newNodes(nil, 1, silent), frames: frames}
	for i, address := range [][]byte{nil, {2, 0, 0, 0, 0, 1}, nil, {2, 0, 0, 0, 0, 2}} {
		n := uint64(i + 1)
		a.events(time.Duration(2*i)*time.Second, "h7", &weirv1.Events{
			Origin: &weirv1.Origin{Incarnation: 1, Sequence: n, StampNs: n}, Host: 7,
			Inventory: &weirv1.Inventory{Serial: n, Parts: 1, Hypervisor: &weirv1.Hypervisor{Frames: address}},
		})
		if got := frames.Carries("h7") != ""; got != (address != nil) {
			t.Errorf("inventory %d, address %x: frames %v", i, address, got)
		}
	}
	if err := frames.Carry("h7", []byte{1}, false); err == nil || frames.Counts()["failed"] != 1 {
		t.Errorf("sent from a device that is down: %v, %v", err, frames.Counts())
	}
	a.leave(a.known["h7"])
	if frames.Carries("h7") != "" {
		t.Error("frames to an agent that is silent")
	}
}

// messages: in-band needs a device and a key.
func TestFrames_File(t *testing.T) {
	dir := t.TempDir()
	for text, says := range map[string]string{
		"messages: in-band":             "bus.port: messages in frames and port need each other",
		"port: eth1":                    "bus.port: messages in frames and port need each other",
		"messages: in-band, port: eth1": "bus.keys: the key of frames: ",
	} {
		_, err := kindController().Parse("c.yaml", []byte("kind: Controller\nbus: {urls: [\"tls://127.0.0.1:1\"], keys: "+dir+", "+text+"}\n"))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
