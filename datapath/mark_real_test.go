package datapath_test

import (
	"fmt"
	"net"
	"testing"

	"weir/datapath"
	"weir/datapath/testnet"
)

// Real TCP through a shaped port: connections work whatever the devices offload, segments arrive
// with CE, and no checksum is wrong. With checksum offload on, the program rewrites packets whose
// checksum is still to be made (CHECKSUM_PARTIAL); with it off, packets that carry one.
func TestMark_RealTCP(t *testing.T) {
	for _, gso := range []bool{false, true} {
		for _, csum := range []bool{false, true} {
			for family, ip := range map[string]net.IP{"ipv4": testnet.ReceiverIPv4, "ipv6": testnet.ReceiverIPv6} {
				t.Run(fmt.Sprintf("%s,gso=%t,csum=%t", family, gso, csum), func(t *testing.T) {
					p := testnet.NewPath(t, testnet.PathOptions{PortBps: 50e6, Limit: 100_000, GSO: gso, ChecksumOffload: csum})
					p.Sender.Sysctl(t, "net.ipv4.tcp_ecn", "1")
					p.Receiver.Sysctl(t, "net.ipv4.tcp_ecn", "1")
					m, err := datapath.AttachMark([]datapath.PortRef{p.Port}, datapath.MarkConfig{ThresholdBytes: 15_000})
					if err != nil {
						t.Fatal(err)
					}
					defer m.Close()
					p.Transfer(t, ip, "reno", 4, 500_000)
					stats, err := m.Stats()
					if err != nil {
						t.Fatal(err)
					}
					ext := "InCEPkts"
					ce := p.Receiver.SNMP(t, "IpExt", ext)
					t.Logf("%+v, CE at the receiver: %d", stats[0], ce)
					if stats[0].Marked == 0 {
						t.Error("nothing was marked")
					}
					for _, c := range [][2]string{{"Tcp", "InCsumErrors"}, {"IpExt", "InCsumErrors"}, {"Ip", "InHdrErrors"}} {
						if n := p.Receiver.SNMP(t, c[0], c[1]); n != 0 {
							t.Errorf("receiver: %s %s = %d", c[0], c[1], n)
						}
					}
				})
			}
		}
	}
}
