package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"weir/openflow"
	"weir/openflow/channel"
)

// law is Weir's side: what osken.py does, on this project's codec and connection.
type law struct {
	ctx      context.Context
	asked    int // requests for statistics that are out at once, of each switch
	flowMods sync.Pool
}

// Up asks for MASTER, for else nothing may be changed, and then for statistics.
func (l *law) Up(c *channel.Conn) {
	go func() {
		if err := c.SetRole(l.ctx, openflow.RoleMaster, 1); err != nil {
			return // the connection has ended, and its switch comes again
		}
		p := &poll{law: l, conn: c, request: openflow.MultipartRequest{
			Type: openflow.MultipartPortStats, Body: openflow.PortStatsRequest{PortNo: openflow.PortAny},
		}}
		for range l.asked {
			p.ask()
		}
	}()
}

// PacketIn forwards as a learning switch does.
func (l *law) PacketIn(c *channel.Conn, in *openflow.PacketIn) {
	port, ok := in.Match.InPort()
	if !ok || len(in.Data) < 14 {
		return
	}
	l.forward(c, port, openflow.MAC(in.Data), openflow.PortNo(in.Data[5]))
}

// Message is for what no case of this program sends.
func (*law) Message(*channel.Conn, openflow.Header, openflow.Message) {}

// Down has nothing to clear.
func (*law) Down(*channel.Conn, error) {}

func (l *law) forward(c *channel.Conn, from openflow.PortNo, destination openflow.MAC, to openflow.PortNo) {
	m := l.flowMods.Get().(*forward)
	m.Match = append(m.Match[:0], openflow.InPort(from), openflow.EthDst(destination, openflow.MAC{}))
	m.output.Port = to
	_, _ = c.Send(&m.FlowMod) // what the switch does not get it asks for again
	l.flowMods.Put(m)
}

// forward is a flow-mod that is used again.
type forward struct {
	openflow.FlowMod
	output openflow.ActionOutput
}

func newForward() any {
	m := &forward{FlowMod: openflow.FlowMod{Priority: 1, BufferID: openflow.NoBuffer, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny}}
	m.Instructions = openflow.Instructions{openflow.InstructionApplyActions{Actions: openflow.Actions{&m.output}}}
	return m
}

// poll keeps the bytes that each port of a switch has sent.
type poll struct {
	law     *law
	conn    *channel.Conn
	request openflow.MultipartRequest
	sent    []sent
}

type sent struct {
	port  openflow.PortNo
	bytes uint64
}

// keep stores the bytes that a port has sent. A switch lists its ports in the same order each time: i is the index to try.
func (p *poll) keep(i int, port openflow.PortNo, bytes uint64) {
	if i >= len(p.sent) || p.sent[i].port != port {
		if i = slices.IndexFunc(p.sent, func(s sent) bool { return s.port == port }); i < 0 {
			p.sent = append(p.sent, sent{port, bytes})
			return
		}
	}
	p.sent[i].bytes = bytes
}

func (p *poll) ask() {
	_ = p.conn.Poll(&p.request, p.part) // the connection may have ended
}

func (p *poll) part(body []byte, last bool, err error) {
	if err != nil {
		return
	}
	ports, err := openflow.IteratePortStats(body)
	if err != nil {
		return
	}
	s := openflow.PortStats{}
	for i := 0; ports.Next(&s); i++ {
		p.keep(i, s.PortNo, s.TxBytes)
		if s.RxErrors > 0 {
			p.law.forward(p.conn, s.PortNo, openflow.MAC{2, 0, 0, 0, 0, 1}, 1)
		}
	}
	if last {
		p.ask()
	}
}

// serve is the controller until it is killed.
func serve(ctx context.Context, asked int) error {
	l := &law{ctx: ctx, asked: asked, flowMods: sync.Pool{New: newForward}}
	const no = 1 << 30 // the rates that protect a controller are not what is measured
	server, err := channel.NewServer(channel.Config{Handler: l, Limits: channel.Limits{
		PerAddress: 4096, HalfOpen: 4096, PacketIns: no, PacketInBytes: no, Messages: no, ReadBytes: no, QueueMessages: no, QueueBytes: no,
		EchoInterval: time.Minute, EchoTimeout: time.Minute,
	}})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	return server.Serve(ctx, listener)
}
