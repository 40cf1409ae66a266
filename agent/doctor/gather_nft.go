package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Attributes of nftables: enum nft_flowtable_attributes, nft_chain_attributes, nft_hook_attributes.
const (
	flowtableTable = 1
	flowtableName  = 2
	flowtableHook  = 3
	flowtableFlags = 7
	flowtableInHW  = 1

	chainTable = 1
	chainName  = 3
	chainHook  = 4

	hookNumber  = 1
	hookDevices = 3 // of a flowtable; of a chain: its device
	chainDevice = 3
	chainMany   = 4

	netdevEgress = 1 // NF_NETDEV_EGRESS
	nfgenmsg     = 4 // bytes
	subsystem    = 10 << 8
)

func flowtables() (out []Flowtable, err error) {
	err = dumpNFT(unix.AF_UNSPEC, unix.NFT_MSG_GETFLOWTABLE, unix.NFT_MSG_NEWFLOWTABLE, func(m []byte) bool {
		if t, ok := parseFlowtable(m); ok {
			out = append(out, t)
		}
		return len(out) < namesMax
	})
	return out, err
}

func egressHooks() (out []EgressHook, err error) {
	err = dumpNFT(unix.NFPROTO_NETDEV, unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_NEWCHAIN, func(m []byte) bool {
		if h, ok := parseEgressHook(m); ok {
			out = append(out, h)
		}
		return len(out) < namesMax
	})
	return out, err
}

func dumpNFT(family byte, get, answer uint16, each func(m []byte) bool) error {
	req := nl.NewNetlinkRequest(int(subsystem|get), unix.NLM_F_DUMP)
	req.AddRawData([]byte{family, 0, 0, 0})
	err := req.ExecuteIter(unix.NETLINK_NETFILTER, subsystem|answer, each)
	if errors.Is(err, unix.EPROTONOSUPPORT) || tooOld(err) { // no nftables here
		return nil
	}
	if err != nil {
		return fmt.Errorf("list flowtables and chains: %w", err)
	}
	return nil
}

func bigEndian(b []byte) (uint32, bool) {
	if len(b) < 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(b), true
}

func parseFlowtable(m []byte) (t Flowtable, ok bool) {
	if len(m) < nfgenmsg {
		return t, false
	}
	all := attributes(m[nfgenmsg:])
	flags, _ := bigEndian(attributeOf(all, flowtableFlags))
	t = Flowtable{
		Table: cString(attributeOf(all, flowtableTable)), Name: cString(attributeOf(all, flowtableName)),
		Devices: deviceNames(attributeOf(attributes(attributeOf(all, flowtableHook)), hookDevices)), Hardware: flags&flowtableInHW != 0,
	}
	return t, t.Name != ""
}

func parseEgressHook(m []byte) (h EgressHook, ok bool) {
	if len(m) < nfgenmsg {
		return h, false
	}
	all := attributes(m[nfgenmsg:])
	hook := attributes(attributeOf(all, chainHook))
	number, ok := bigEndian(attributeOf(hook, hookNumber))
	h = EgressHook{
		Table: cString(attributeOf(all, chainTable)), Name: cString(attributeOf(all, chainName)), Devices: deviceNames(attributeOf(hook, chainMany)),
	}
	if one := cString(attributeOf(hook, chainDevice)); one != "" && !slices.Contains(h.Devices, one) {
		h.Devices = append(h.Devices, one)
	}
	return h, ok && number == netdevEgress
}

// deviceNames reads a list of devices.
func deviceNames(b []byte) (out []string) {
	for _, a := range attributes(b) {
		out = append(out, cString(a.Value))
	}
	return first(out)
}
