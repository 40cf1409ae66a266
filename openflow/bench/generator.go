package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"weir/openflow"
)

const (
	portsOfSwitch = 48  // in a reply with statistics
	errorsEvery   = 100 // replies: then one port shows an error, and the law acts
	longest       = int64(time.Minute)
)

// peer is a switch as a controller sees it. It answers the handshake and questions for statistics, and tells how long
// its packet-ins wait for their flow-mods, which come in the same order.
type peer struct {
	conn     net.Conn
	r        *bufio.Reader
	datapath uint64
	packetIn []byte
	stats    []byte
	stopped  chan struct{} // closed when work has returned

	mu      sync.Mutex // of all below, and of writing
	out     []byte
	again   bool    // send a packet-in for each flow-mod
	sentNs  []int64 // when each packet-in was sent that waits for its flow-mod, oldest first
	early   bool    // packet-ins may be lost yet: the controller need not listen
	latency *hdrhistogram.Histogram
	done    uint64 // flow-mods that came, or statistics that were asked for
	replies uint64
}

// newPeer connects, and works off whatever comes from then on.
func newPeer(addr string, n int) (*peer, error) {
	p := &peer{datapath: uint64(n) + 1, early: true, stopped: make(chan struct{}), latency: hdrhistogram.New(1, longest, 3)}
	var err error
	for range 200 { // a listener with a short queue turns some away
		if p.conn, err = net.DialTimeout("tcp", addr, time.Second); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return nil, err
	}
	p.r = bufio.NewReaderSize(p.conn, 64<<10)
	if p.packetIn, err = packetIn(); err != nil {
		return nil, err
	}
	if p.stats, err = portStats(); err != nil {
		return nil, err
	}
	if p.out, err = openflow.Append(nil, 0, &openflow.Hello{Versions: []uint8{openflow.Version13}}); err != nil {
		return nil, err
	}
	if err := p.flush(); err != nil {
		return nil, err
	}
	go p.work()
	return p, nil
}

// packetIn is a SYN, as a switch copies it.
func packetIn() ([]byte, error) {
	frame := make([]byte, 74)
	copy(frame, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 60})
	in := openflow.PacketIn{BufferID: openflow.NoBuffer, TotalLen: uint16(len(frame)), Match: openflow.Match{openflow.InPort(3)}, Data: frame}
	return openflow.Append(nil, 0, &in)
}

// portStats is what a switch of 48 ports answers.
func portStats() ([]byte, error) {
	all := make(openflow.PortStatsReply, portsOfSwitch)
	for i := range all {
		n := uint64(i)
		all[i] = openflow.PortStats{PortNo: openflow.PortNo(i + 1), RxPackets: 1e6 + n, TxPackets: 2e6 + n, RxBytes: 1e9 + n, TxBytes: 2e9 + n, DurationSec: 1000}
	}
	return openflow.Append(nil, 0, &openflow.MultipartReply{Type: openflow.MultipartPortStats, Body: all})
}

// work reads until the connection ends, or its deadline: a batch of messages, then what they make the switch say.
func (p *peer) work() {
	defer close(p.stopped)
	for {
		if _, err := p.r.Peek(openflow.HeaderLen); err != nil {
			return
		}
		now := time.Now().UnixNano()
		p.mu.Lock()
		err := p.answer(now)
		for err == nil && p.r.Buffered() >= openflow.HeaderLen {
			err = p.answer(now)
		}
		if err == nil {
			err = p.flush()
		}
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// answer takes one message.
func (p *peer) answer(now int64) error {
	head, err := p.r.Peek(openflow.HeaderLen)
	if err != nil {
		return err
	}
	h, err := openflow.ParseHeader(head)
	if err != nil {
		return err
	}
	if h.Type == openflow.TypeFlowMod {
		_ = p.flowMod(now)
		_, err := p.r.Discard(int(h.Length))
		return err
	}
	b := make([]byte, h.Length)
	if _, err := io.ReadFull(p.r, b); err != nil {
		return err
	}
	return p.reply(h, b)
}

// reply answers a question as a switch does.
func (p *peer) reply(h openflow.Header, b []byte) error {
	var reply openflow.Message
	switch h.Type {
	case openflow.TypeFeaturesRequest:
		reply = &openflow.FeaturesReply{DatapathID: p.datapath, Tables: 254, Capabilities: openflow.CapabilityPortStats}
	case openflow.TypeEchoRequest:
		reply = &openflow.EchoReply{Data: b[openflow.HeaderLen:]}
	case openflow.TypeBarrierRequest:
		reply = &openflow.BarrierReply{}
	case openflow.TypeRoleRequest:
		var role openflow.RoleRequest
		if err := role.DecodeBody(b[openflow.HeaderLen:]); err != nil {
			return err
		}
		reply = &openflow.RoleReply{Role: role.Role, GenerationID: role.GenerationID}
	case openflow.TypeMultipartRequest:
		var ask openflow.MultipartRequest
		if err := ask.DecodeBody(b[openflow.HeaderLen:]); err != nil {
			return err
		}
		if ask.Type == openflow.MultipartPortStats {
			p.statistics(h.XID)
			return nil
		}
		reply = &openflow.MultipartReply{Type: openflow.MultipartPortDesc, Body: openflow.PortDescReply{}}
	default:
		return nil
	}
	out, err := openflow.Append(p.out, h.XID, reply)
	p.out = out
	return err
}

// statistics is the same reply each time, but for the transaction and, every so often, an error at the last port.
func (p *peer) statistics(xid uint32) {
	p.replies++
	p.done++
	at := len(p.out)
	p.out = append(p.out, p.stats...)
	binary.BigEndian.PutUint32(p.out[at+4:], xid)
	if p.replies%errorsEvery == 0 {
		const rxErrors, entry = 56, 112 // bytes: ofp_port_stats
		p.out[len(p.out)-entry+rxErrors+7] = 1
	}
}

// flowMod takes one, and says whether a packet-in waited for it.
func (p *peer) flowMod(now int64) bool {
	if p.early {
		p.done++
		return false
	}
	if len(p.sentNs) == 0 {
		return false // the law acted on statistics
	}
	_ = p.latency.RecordValue(min(now-p.sentNs[0], longest))
	p.sentNs = p.sentNs[1:]
	p.done++
	if p.again {
		p.packet(now)
	}
	return true
}

// packet queues a packet-in.
func (p *peer) packet(now int64) {
	p.out = append(p.out, p.packetIn...)
	p.sentNs = append(p.sentNs, now)
}

func (p *peer) flush() error {
	if len(p.out) == 0 {
		return nil
	}
	_, err := p.conn.Write(p.out)
	p.out = p.out[:0]
	return err
}

// send sends n packet-ins.
func (p *peer) send(n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now().UnixNano()
	for range n {
		p.packet(now)
	}
	return p.flush()
}

// heard waits until the controller acts upon this switch's packet-ins, and no more flow-mods come than were asked for.
func (p *peer) heard() error {
	for tries := 0; p.count() == 0; tries++ {
		if tries > 100 {
			return fmt.Errorf("switch %d: the controller did not answer a packet-in within %d tries", p.datapath, tries)
		}
		p.mu.Lock()
		p.out = append(p.out, p.packetIn...)
		err := p.flush()
		p.mu.Unlock()
		if err != nil {
			return err
		}
		time.Sleep(250 * time.Millisecond)
	}
	for last := uint64(0); last != p.count(); time.Sleep(time.Second) {
		last = p.count()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.early, p.sentNs = false, nil
	return nil
}

func (p *peer) count() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// setAgain turns the load on or off.
func (p *peer) setAgain(again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.again = again
}

// forget begins the latencies anew.
func (p *peer) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency.Reset()
}

// asked waits until the controller asks for statistics.
func (p *peer) asked() error {
	for range 1000 {
		if p.count() > 0 {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("switch %d: the controller asks for no statistics", p.datapath)
}

// waiting is the number of packet-ins that have no flow-mod yet.
func (p *peer) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sentNs)
}
