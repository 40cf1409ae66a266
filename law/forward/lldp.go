package forward

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"weir/law"
	"weir/law/fabric"
)

// A probe is an LLDP frame (IEEE 802.1AB) that a switch sends from one port for the controller. The switch that returns it to
// the controller is linked to that port, at the port where the probe came in. An organisation-specific TLV carries a number
// and a keyed tag over the whole frame: hosts cannot make one, and copies become stale soon.
const (
	probeTTL     = 2 // seconds; for other receivers of LLDP
	probeSubtype = 1
	tagBytes     = 16
)

// weirOUI identifies the TLV. It is locally administered: Weir has no registered one.
const weirOUI layers.IEEEOUI = 0x025745

// probeTo is the address of the nearest bridge: bridges do not forward it.
var probeTo = fabric.MAC{0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e}

// tag returns the keyed hash of a probe: HMAC-SHA-256, cut to 16 bytes (RFC 2104, 5).
func tag(key []byte, from law.Port, number uint64) []byte {
	var b [20]byte
	binary.BigEndian.PutUint64(b[0:], uint64(from.Switch))
	binary.BigEndian.PutUint32(b[8:], from.N)
	binary.BigEndian.PutUint64(b[12:], number)
	h := hmac.New(sha256.New, key)
	h.Write(b[:])
	return h.Sum(nil)[:tagBytes]
}

// makeProbe returns a probe's frame.
func makeProbe(key []byte, from law.Port, src fabric.MAC, number uint64) []byte {
	b := make([]byte, 0, 80)
	b = append(b, probeTo[:]...)
	b = append(b, src[:]...)
	b = binary.BigEndian.AppendUint16(b, typeLLDP)
	tlv := func(kind layers.LLDPTLVType, head []byte, value []byte) {
		b = binary.BigEndian.AppendUint16(b, uint16(kind)<<9|uint16(len(head)+len(value)))
		b = append(append(b, head...), value...)
	}
	tlv(layers.LLDPTLVChassisID, []byte{byte(layers.LLDPChassisIDSubTypeLocal)}, []byte(from.Switch.String()))
	tlv(layers.LLDPTLVPortID, []byte{byte(layers.LLDPPortIDSubtypeLocal)}, fmt.Append(nil, from.N))
	tlv(layers.LLDPTLVTTL, nil, []byte{0, probeTTL})
	own := binary.BigEndian.AppendUint64(nil, number)
	own = append(own, tag(key, from, number)...)
	tlv(layers.LLDPTLVOrgSpecific, []byte{byte(weirOUI >> 16), byte(weirOUI >> 8 & 0xff), byte(weirOUI & 0xff), probeSubtype}, own)
	return append(b, 0, 0) // end
}

// readProbe checks a frame and returns the port that sent it and its number. False: it is no probe of this controller.
func readProbe(key []byte, frame []byte) (from law.Port, number uint64, ok bool) {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{NoCopy: true})
	base, ok1 := p.Layer(layers.LayerTypeLinkLayerDiscovery).(*layers.LinkLayerDiscovery)
	info, ok2 := p.Layer(layers.LayerTypeLinkLayerDiscoveryInfo).(*layers.LinkLayerDiscoveryInfo)
	if !ok1 || !ok2 {
		return from, 0, false
	}
	var id uint64
	var port uint32
	if _, err := fmt.Sscanf(string(base.ChassisID.ID), "%016x", &id); err != nil {
		return from, 0, false
	}
	if _, err := fmt.Sscanf(string(base.PortID.ID), "%d", &port); err != nil {
		return from, 0, false
	}
	from = law.Port{Switch: law.Switch(id), N: port}
	for _, t := range info.OrgTLVs {
		if t.OUI != weirOUI || t.SubType != probeSubtype || len(t.Info) != 8+tagBytes {
			continue
		}
		number = binary.BigEndian.Uint64(t.Info)
		return from, number, hmac.Equal(t.Info[8:], tag(key, from, number))
	}
	return from, 0, false
}
