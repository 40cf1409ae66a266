package lawtest

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/law"
	"weir/law/fabric"
	"weir/law/fabric/modelnet"
)

// Keeps runs a law under Checked with random events, some of them impossible. make returns the law, each time the same. more
// draws events of the law's own kinds.
func Keeps(t *testing.T, make func() law.Law, more ...func(t *rapid.T) law.Event) {
	rapid.Check(t, func(t *rapid.T) {
		l := Checked(t, make(), make())
		kinds := slices.Concat(events, more)
		now := time.Duration(0)
		for range rapid.IntRange(1, 100).Draw(t, "events") {
			if rapid.Bool().Draw(t, "wake") {
				now = max(now, l.Wake())
				l.Step(now, law.Tick{}, nil)
				continue
			}
			now += time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond
			l.Step(now, rapid.SampledFrom(kinds).Draw(t, "kind")(t), nil)
		}
	})
}

// events draws the kinds of events that a controller has. There are few switches, ports and hosts, so that events concern the
// same ones.
var events = []func(t *rapid.T) law.Event{
	func(t *rapid.T) law.Event {
		e := &fabric.Joined{Switch: aSwitch(t)}
		for n := range rapid.IntRange(0, 4).Draw(t, "ports") {
			e.Ports = append(e.Ports, portInfo(t, fabric.PortNo(n+1)))
		}
		for range rapid.IntRange(0, 4).Draw(t, "flows") {
			e.Found.Flows = append(e.Found.Flows, flow(t))
		}
		for n := range rapid.IntRange(0, 2).Draw(t, "groups") {
			e.Found.Groups = append(e.Found.Groups, fabric.Group{ID: fabric.GroupBase + uint32(n), Ports: []fabric.PortNo{1, aPort(t)}})
		}
		for n := range rapid.IntRange(0, 2).Draw(t, "meters") {
			e.Found.Meters = append(e.Found.Meters, fabric.Meter{ID: fabric.MeterFirst + uint32(n), Rate: 1000, Burst: 100})
		}
		return e
	},
	func(t *rapid.T) law.Event { return &fabric.Left{Switch: aSwitch(t)} },
	func(t *rapid.T) law.Event {
		return &fabric.PortChanged{Switch: aSwitch(t), Port: portInfo(t, aPort(t)), Gone: rapid.IntRange(0, 3).Draw(t, "gone") == 0}
	},
	packetIn, packetIn, packetIn,
	func(t *rapid.T) law.Event {
		return &fabric.Confirmed{Switch: aSwitch(t), Serial: rapid.Uint64Range(0, 20).Draw(t, "serial")}
	},
	func(t *rapid.T) law.Event { return &fabric.Expired{Switch: aSwitch(t), Flow: flow(t).FlowKey} },
	func(t *rapid.T) law.Event {
		return &fabric.PinAsked{Tuple: tuple(t), IdleSeconds: rapid.Uint16Range(0, 60).Draw(t, "idle")}
	},
	func(t *rapid.T) law.Event { return &fabric.PinDropped{Tuple: tuple(t)} },
	func(t *rapid.T) law.Event {
		e := &fabric.PortStats{Switch: aSwitch(t)}
		for n := range rapid.IntRange(0, 4).Draw(t, "ports") {
			e.Ports = append(e.Ports, fabric.Counters{Port: fabric.PortNo(n + 1), TxBytes: rapid.Uint64().Draw(t, "bytes")})
		}
		return e
	},
	func(t *rapid.T) law.Event { return &fabric.StatsFailed{Switch: aSwitch(t)} },
}

func packetIn(t *rapid.T) law.Event {
	e := &fabric.PacketIn{At: law.Port{Switch: aSwitch(t), N: aPort(t)}}
	from, to := host(t), host(t)
	switch rapid.IntRange(0, 4).Draw(t, "frame") {
	case 0:
		e.Kind, e.Frame = fabric.Miss, modelnet.Ethernet(from, to)
	case 1:
		e.Kind, e.Frame = fabric.ARP, modelnet.ARP(from, ip(t), fabric.Broadcast, ip(t))
	case 2:
		e.Kind = rapid.SampledFrom([]fabric.Kind{fabric.SYN, fabric.FIN, fabric.RST, fabric.UnknownSource, fabric.Miss}).Draw(t, "why")
		e.Frame = modelnet.TCP(from, to, tuple(t), rapid.Byte().Draw(t, "flags"))
	case 3:
		e.Kind, e.Frame = fabric.Miss, modelnet.Ethernet(from, fabric.Broadcast)
	default:
		e.Kind, e.Frame = fabric.Kind(rapid.Byte().Draw(t, "why")), rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "bytes")
	}
	return e
}

func aSwitch(t *rapid.T) law.Switch  { return law.Switch(rapid.Uint64Range(1, 3).Draw(t, "switch")) }
func aPort(t *rapid.T) fabric.PortNo { return rapid.Uint32Range(1, 4).Draw(t, "port") }
func host(t *rapid.T) fabric.MAC {
	return fabric.MAC{0x0a, 5: byte(rapid.IntRange(1, 4).Draw(t, "host"))}
}
func ip(t *rapid.T) fabric.IPv4 {
	return fabric.IPv4{10, 3: byte(rapid.IntRange(1, 4).Draw(t, "address"))}
}
func tuple(t *rapid.T) fabric.Tuple {
	return fabric.Tuple{Proto: 6, Src: ip(t), Dst: ip(t), SrcPort: 1000, DstPort: 80}
}

func portInfo(t *rapid.T, n fabric.PortNo) fabric.PortInfo {
	return fabric.PortInfo{Port: n, Name: "p", MAC: fabric.MAC{2, 5: byte(n)}, Up: rapid.IntRange(0, 4).Draw(t, "up") > 0}
}

func flow(t *rapid.T) fabric.Flow {
	f := fabric.Flow{Kind: fabric.Kind(rapid.Uint8Range(0, uint8(fabric.Pass)).Draw(t, "kind"))}
	f.Table, f.Priority = rapid.Uint8Range(0, 3).Draw(t, "table"), rapid.SampledFrom([]uint16{0, 100, 700}).Draw(t, "priority")
	switch rapid.IntRange(0, 3).Draw(t, "match") {
	case 0:
		f.Match.InPort, f.Match.EthSrc = aPort(t), host(t)
	case 1:
		f.Match.EthDst = host(t)
	case 2:
		f.Match.Tuple = tuple(t)
	}
	switch rapid.IntRange(0, 2).Draw(t, "do") {
	case 0:
		f.Do.Out = aPort(t)
	case 1:
		f.Do.Group = fabric.GroupBase + rapid.Uint32Range(0, 1).Draw(t, "group")
	}
	return f
}
