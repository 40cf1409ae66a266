package controller

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/law/fabric"
	"weir/law/fabric/modelnet"
	"weir/openflow"
)

// attack is what many peers do wrong at once, for ever. from and id give each of them its own address and
// datapath id.
type attack struct {
	name  string
	peers int
	one   func(from string, id uint64)
	cause string // by which their connections end; "": they are borne with
}

// attacks are all of them. Each peer begins again when it is thrown out.
var attacks = []attack{
	{"loris", 240, loris, "handshake"},
	{"versions", 16, versions, "version"},
	{"garbage", 16, garbage, "malformed"},
	{"unfinished-message", 32, unfinished, "slow_message"},
	{"echo-flood", 8, echoFlood, ""},
	{"forged-generation", 8, forgedGeneration, "stale"},
	{"claimed-generation", 8, claimedGeneration, "stale"},
	{"forged-role", 8, forgedRole, "role_forged"},
	{"same-datapath-id", 8, sameDatapath, "duplicate"},
	{"endless-flow-table", 8, endlessTable, ""},
	{"port-flapping", 8, portFlapping, ""},
	{"forged-LLDP", 8, forgedLLDP, ""},
	{"never-reads", 8, neverReads, "slow_reader"},
	{"SYN-200k-1-switch", 1, synFlood(200_000), ""},
	{"SYN-200k-16-switches", 16, synFlood(12_500), ""},
	{"SYN-200k-200-switches", 200, synFlood(1_000), ""},
}

// gentle attackers rest after each write, and before they come again. The longer the controller takes for an answer, the longer they rest,
// so that an honest switch has the same share of a slow machine as of a fast one.
var gentle bool

// answer is when this process asked the controller, and how long its last answer took.
var answer struct{ asked, took atomic.Int64 } // ns of the clock, 0: not asked; ns

func rest(d time.Duration) {
	if !gentle {
		return
	}
	const share = 50
	took := answer.took.Load()
	if asked := answer.asked.Load(); asked != 0 {
		took = max(took, time.Now().UnixNano()-asked)
	}
	time.Sleep(max(d, share*time.Duration(took)))
}

// askAgain is a switch that measures how long the controller takes to accept it, and then for an echo, ten times a second.
func askAgain(from string, id uint64) {
	answered := func() {
		if asked := answer.asked.Swap(0); asked != 0 {
			answer.took.Store(time.Now().UnixNano() - asked)
		}
	}
	for ; ; time.Sleep(100 * time.Millisecond) {
		answer.asked.Store(time.Now().UnixNano())
		joined(from, model{id: id, ports: 1, seen: func(_ openflow.Header, m openflow.Message) {
			if _, is := m.(*openflow.EchoReply); is {
				answered()
			}
		}}, func(p *remote) {
			answered()
			for every := time.Tick(100 * time.Millisecond); ; <-every {
				if !answer.asked.CompareAndSwap(0, time.Now().UnixNano()) {
					continue // the last one is not answered
				}
				if p.send(0, &openflow.EchoRequest{}) != nil {
					return
				}
			}
		})
	}
}

// beHostile is the attacking process.
func beHostile(name string) {
	name, gentle = strings.CutSuffix(name, gently)
	for i, a := range attacks {
		if a.name == name {
			a.run(i)
		}
	}
	fmt.Fprintln(os.Stderr, "no attack", name)
	os.Exit(1)
}

// run has each peer begin again whenever it is thrown out. Fifty peers share an address, and each attack has its own
// addresses and datapath ids.
func (a *attack) run(number int) {
	if gentle {
		go askAgain(fmt.Sprintf("127.1.%d.200", number), uint64(1000*(1+number)+999))
	}
	var all sync.WaitGroup
	for i := range a.peers {
		all.Go(func() {
			for {
				a.one(fmt.Sprintf("127.1.%d.%d", number, 1+i/50), uint64(1000*(1+number)+i))
				time.Sleep(10 * time.Millisecond)
				rest(200 * time.Millisecond)
			}
		})
	}
	all.Wait()
}

// with connects, and closes when f returns.
func with(from string, f func(p *remote)) {
	p, err := dialFrom(from)
	if err != nil {
		return
	}
	defer p.nc.Close()
	f(p)
}

// joined is an honest switch until the controller has accepted it; then f runs on a goroutine of its own.
func joined(from string, m model, f func(p *remote)) {
	with(from, func(p *remote) {
		m.joined = func() { go f(p) }
		_ = p.be(m)
	})
}

func loris(from string, _ uint64) {
	with(from, func(p *remote) {
		go func() {
			for range 8 {
				if p.write([]byte{openflow.Version13}) != nil {
					return
				}
				time.Sleep(3 * time.Second)
			}
		}()
		p.drain()
	})
}

func versions(from string, id uint64) {
	with(from, func(p *remote) {
		version := []byte{1, 2, 3, 5, 6, 0xff}[id%6]
		_ = p.write([]byte{version, 0, 0, 8, 0, 0, 0, 1})
		p.drain()
	})
}

func garbage(from string, id uint64) {
	with(from, func(p *remote) {
		rng := rand.New(rand.NewPCG(id, 1))
		b := []byte{openflow.Version13, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0xff, 0xff} // a hello whose element ends nowhere
		for range 4096 {
			b = append(b, byte(rng.Uint32()))
		}
		_ = p.write(b)
		p.drain()
	})
}

func unfinished(from string, id uint64) {
	joined(from, model{id: id, ports: 1}, func(p *remote) {
		if p.write([]byte{openflow.Version13, byte(openflow.TypePacketIn), 0xff, 0xff, 0, 0, 0, 0}) != nil {
			return
		}
		for p.write([]byte{0}) == nil {
			time.Sleep(time.Second / 10)
		}
	})
}

// batch returns 32 KB of messages, the same again and again.
func batch(messages ...openflow.Message) (b []byte) {
	for len(b) < 32<<10 {
		for _, m := range messages {
			var err error
			if b, err = openflow.Append(b, 7, m); err != nil {
				panic(err)
			}
		}
	}
	return b
}

// repeat writes messages again and again.
func repeat(p *remote, messages ...openflow.Message) {
	for b := batch(messages...); p.write(b) == nil; {
		rest(300 * time.Millisecond)
	}
}

func echoFlood(from string, id uint64) {
	joined(from, model{id: id, ports: 1}, func(p *remote) { repeat(p, &openflow.EchoRequest{Data: make([]byte, 100)}) })
}

// forgedGeneration reports a far higher generation id as in use.
func forgedGeneration(from string, id uint64) {
	joined(from, model{id: id, ports: 1}, func(p *remote) {
		body := binary.BigEndian.AppendUint32(nil, uint32(openflow.RoleSlave))
		body = append(body, 0, 0, 0, 0)
		body = binary.BigEndian.AppendUint64(body, 1<<62)
		_ = p.send(0, &openflow.Experimenter{Experimenter: openflow.ExperimenterONF, ExpType: 1911, Data: body})
	})
}

// claimedGeneration calls our generation id stale, and says that it knows a far higher one.
func claimedGeneration(from string, id uint64) {
	with(from, func(p *remote) {
		_ = p.be(model{id: id, ports: 1, role: func(q *openflow.RoleRequest) openflow.Message {
			if q.Role == openflow.RoleNoChange {
				return &openflow.RoleReply{Role: openflow.RoleSlave, GenerationID: 1 << 62}
			}
			return refusedRole(openflow.CodeRoleStale)
		}})
	})
}

// forgedRole confirms what was not asked.
func forgedRole(from string, id uint64) {
	joined(from, model{id: id, ports: 1, role: func(q *openflow.RoleRequest) openflow.Message {
		return &openflow.RoleReply{Role: q.Role, GenerationID: q.GenerationID + 1<<40}
	}}, func(*remote) {})
}

func sameDatapath(from string, _ uint64) {
	joined(from, model{id: honestID, ports: 4}, func(*remote) {})
}

// endlessTable is a new switch each time, with a table of flows that does not end. They are of nobody whom the
// controller knows, in tables that it does not use, so that it reads on.
func endlessTable(from string, id uint64) {
	with(from, func(p *remote) {
		var flows openflow.FlowStatsReply
		for i := range 500 {
			flows = append(flows, openflow.FlowStats{TableID: 9, Priority: uint16(i), Match: openflow.Match{openflow.EthType(0x88b5)}})
		}
		_ = p.be(model{id: 1<<40 + id<<20 + tables.Add(1), ports: 1, flows: func(p *remote, xid uint32) error {
			b, err := openflow.Append(nil, xid, &openflow.MultipartReply{Type: openflow.MultipartFlow, More: true, Body: flows})
			for err == nil {
				err = p.write(b)
				rest(20 * time.Millisecond)
			}
			return err
		}})
	})
}

var tables atomic.Uint64

// portFlapping has its ports come and go.
func portFlapping(from string, id uint64) {
	joined(from, model{id: id, ports: 48}, func(p *remote) {
		var all []openflow.Message
		for n := range 48 {
			all = append(all, &openflow.PortStatus{Reason: openflow.PortDelete, Desc: modelPort(n + 1)},
				&openflow.PortStatus{Reason: openflow.PortAdd, Desc: modelPort(n + 1)})
		}
		repeat(p, all...)
	})
}

// forgedLLDP sends back the probes that it is sent, as if they had come in at other ports.
func forgedLLDP(from string, id uint64) {
	var last atomic.Pointer[[]byte]
	joined(from, model{id: id, ports: 8, seen: func(_ openflow.Header, m openflow.Message) {
		if out, is := m.(*openflow.PacketOut); is {
			b := []byte(out.Data)
			last.Store(&b)
		}
	}}, func(p *remote) {
		for port := 0; ; port++ {
			if b := last.Load(); b != nil && p.send(0, copyOf(fabric.Probe, port%100, *b)) != nil {
				return
			}
			if port%100 == 99 { // 20000 a second
				time.Sleep(5 * time.Millisecond)
				rest(50 * time.Millisecond)
			}
		}
	})
}

// neverReads asks for much and takes nothing. A gentle one asks for a megabyte, which the controller's buffers do not hold, and then
// for so little that it is not ended for its silence.
func neverReads(from string, id uint64) {
	with(from, func(p *remote) {
		var begun sync.Once
		_ = p.be(model{id: id, ports: 2, joined: func() {
			begun.Do(func() {
				host, echo := fabric.MAC{2, 5, 0, 0, byte(id >> 8), byte(id)}, &openflow.EchoRequest{Data: make([]byte, 1000)}
				asks := copyOf(fabric.ARP, 1, modelnet.ARP(host, fabric.IPv4{10, 7, byte(id >> 8), byte(id)}, fabric.Broadcast, fabric.IPv4{10, 2, 0, 0}))
				for n, b := 0, batch(echo, asks); p.write(b) == nil; n++ {
					if gentle && n == 40 {
						repeatOften(p, &openflow.EchoRequest{})
					}
				}
			})
		}})
	})
}

// repeatOften writes a message ten times a second.
func repeatOften(p *remote, m openflow.Message) {
	for p.send(0, m) == nil {
		time.Sleep(100 * time.Millisecond)
	}
}

// synFlood sends so many copies of SYNs a second, as a switch would that does not keep to its meters: each of
// another sender.
func synFlood(perSecond int) func(from string, id uint64) {
	return func(from string, id uint64) {
		joined(from, model{id: id, ports: 4}, func(p *remote) {
			rng := rand.New(rand.NewPCG(id, 2))
			begun, sent := time.Now(), 0
			var b []byte
			for {
				due := int(time.Since(begun).Seconds() * float64(perSecond))
				if gentle {
					due = sent + 50
				}
				b = b[:0]
				for ; sent < due && len(b) < 256<<10; sent++ {
					var err error
					if b, err = openflow.Append(b, 0, copyOf(fabric.SYN, 1+sent%4, randomSYN(rng))); err != nil {
						panic(err)
					}
				}
				if len(b) > 0 && p.write(b) != nil {
					return
				}
				time.Sleep(time.Millisecond)
				rest(50 * time.Millisecond)
			}
		})
	}
}

// randomSYN is a SYN of some host to some other.
func randomSYN(rng *rand.Rand) []byte {
	a, b := rng.Uint64(), rng.Uint64()
	t := fabric.Tuple{
		Proto: 6, Src: fabric.IPv4{10, byte(a), byte(a >> 8), byte(a >> 16)}, Dst: fabric.IPv4{10, byte(b), byte(b >> 8), byte(b >> 16)},
		SrcPort: uint16(a >> 24), DstPort: uint16(b >> 24),
	}
	mac := func(x uint64) fabric.MAC {
		return fabric.MAC{2, byte(x >> 40), byte(x >> 48), byte(x >> 56), byte(x >> 32), byte(x)}
	}
	return modelnet.TCP(mac(a), mac(b), t, 2)
}
