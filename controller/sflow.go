package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"weir/config"
	"weir/controller/sflow"
	"weir/law"
	"weir/law/telemetry"
)

// fileSFlow is the key `sflow` of a file: switches without an agent of Weir.
type fileSFlow struct {
	Listen   string            `json:"listen" jsonschema:"required" jsonschema_description:"address and port to receive sFlow version 5 on, such as 192.0.2.1:6343"`
	Interval law.Duration      `json:"interval,omitempty" jsonschema_description:"time between two readings for the laws, 1ms to 10s (default: 100ms)"`
	Switches []fileSFlowSwitch `json:"switches" jsonschema:"required,minItems=1,maxItems=1024" jsonschema_description:"switches whose datagrams are taken. Those of others are refused and counted"`
}

type fileSFlowSwitch struct {
	Address string     `json:"address" jsonschema:"required" jsonschema_description:"address that the switch sends from. The sender of a datagram can be forged: use a network that only switches reach"`
	Switch  law.Switch `json:"switch" jsonschema:"required,minimum=1" jsonschema_description:"number of the switch for laws, which no agent has"`
	Ports   []uint32   `json:"ports,omitempty" jsonschema:"maxItems=1024" jsonschema_description:"ifIndex of interfaces: packets with CE that come in by these are counted. A packet that two switches sample must count once (default: all)"`
}

// SFlow is where sFlow comes from.
type SFlow struct {
	Listen   string
	Interval time.Duration
	Switches []sflow.Switch
}

const (
	defaultSFlowInterval = 100 * time.Millisecond
	sflowBuffer          = 4 << 20 // of the socket, bytes
)

func checkSFlow(c *config.Checker, f *File) {
	s := f.SFlow
	if s == nil {
		return
	}
	fail := func(key, says, do string) { c.Fail([]string{"sflow", key}, says, do) }
	if f.Bus == nil {
		c.Fail([]string{"sflow"}, "the laws' rates would reach nobody", "add the key bus")
	}
	if a, err := netip.ParseAddrPort(s.Listen); err != nil || a.Addr().Zone() != "" {
		fail("listen", fmt.Sprintf("%q is not an address with a port", config.Clip(s.Listen)), "such as 192.0.2.1:6343")
	}
	if i := time.Duration(s.Interval); i != 0 && (i < time.Millisecond || i > 10*time.Second) {
		fail("interval", fmt.Sprintf("%v is out of range", i), "1ms to 10s")
	}
	numbers, addresses := map[law.Switch]bool{}, map[netip.Addr]bool{}
	for _, w := range s.Switches {
		a, err := netip.ParseAddr(w.Address)
		switch {
		case err != nil || a.Zone() != "":
			fail("switches", fmt.Sprintf("%q is not an address", config.Clip(w.Address)), "such as 192.0.2.11")
		case numbers[w.Switch] || addresses[a.Unmap()]:
			fail("switches", fmt.Sprintf("%v or switch %d is there twice", a, w.Switch), "each once")
		}
		numbers[w.Switch], addresses[a.Unmap()] = true, true
	}
}

func (s *fileSFlow) config() *SFlow {
	if s == nil {
		return nil
	}
	out := &SFlow{Listen: s.Listen, Interval: time.Duration(s.Interval)}
	if out.Interval == 0 {
		out.Interval = defaultSFlowInterval
	}
	for _, w := range s.Switches {
		a, _ := netip.ParseAddr(w.Address) // checked before
		out.Switches = append(out.Switches, sflow.Switch{Address: a.Unmap(), Number: w.Switch, Ports: slices.Clone(w.Ports)})
	}
	return out
}

// sflowLink receives sFlow and passes it to the laws.
type sflowLink struct {
	conn     *net.UDPConn
	receiver *sflow.Receiver
	every    time.Duration
	core     *Core
	last     time.Duration // reading, on the core's clock; of the laws' goroutine
}

// listenSFlow opens the socket; nil: the file has no key sflow.
func (r *role) listenSFlow(c *Core) (*sflowLink, error) {
	s := r.cfg.SFlow
	if s == nil {
		return nil, nil
	}
	at, err := netip.ParseAddrPort(s.Listen)
	if err != nil {
		return nil, fmt.Errorf("sflow.listen: %w", err)
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, fmt.Errorf("listen for sFlow on %s: %w", s.Listen, err)
	}
	if err := conn.SetReadBuffer(sflowBuffer); err != nil {
		r.log.Warn("the buffer for sFlow is small: datagrams may be lost", "error", err)
	}
	return &sflowLink{conn: conn, receiver: sflow.New(s.Switches, r.log), every: s.Interval, core: c, last: c.now()}, nil
}

// receive takes datagrams until the socket is closed.
func (l *sflowLink) receive() {
	var b [sflow.MaxDatagram]byte
	for {
		n, from, err := l.conn.ReadFromUDPAddrPort(b[:])
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			l.receiver.Refuse("socket", err)
		default:
			l.receiver.Take(from.Addr(), b[:n])
		}
	}
}

// run passes what came to the laws, until ctx is done.
func (l *sflowLink) run(ctx context.Context) {
	every := time.NewTicker(l.every)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			l.core.Do(ctx, l.read)
		}
	}
}

// read runs on the laws' goroutine.
func (l *sflowLink) read() {
	a, now := l.core.agents, l.core.now()
	t := now - l.last // more than every, if the laws were busy
	l.last = now
	l.receiver.Readings(t, a.vmAt, func(e *telemetry.Telemetry) {
		if of := a.switches.of(e.At); of != nil {
			l.receiver.Refuse("claimed", fmt.Errorf("agent %s has switch %d", of.name, e.At))
			return
		}
		l.core.step(e)
	})
}

func (l *sflowLink) close() {
	if l != nil {
		_ = l.conn.Close()
	}
}

func (l *sflowLink) status() *sflow.Counts {
	if l == nil {
		return nil
	}
	c := l.receiver.Counts()
	return &c
}
