package channel

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"time"
)

// Bounds of the time that Keep waits before it dials again. It doubles each time.
const (
	redialMin = 100 * time.Millisecond
	redialMax = 8 * time.Second
)

// Dial makes one connection, for a tool. Network and address are those of net.Dial; "unix" reaches Open vSwitch's
// BRIDGE.mgmt. The context limits the dialling, not the connection.
func Dial(ctx context.Context, network, address string, config Config) (*Conn, error) {
	s, err := NewServer(config)
	if err != nil {
		return nil, err
	}
	return s.Dial(ctx, network, address)
}

// Dial connects to a switch that listens. The connection counts like an accepted one, and stays open until it is closed.
func (s *Server) Dial(ctx context.Context, network, address string) (*Conn, error) {
	if err := checkDial(s.tls); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.HandshakeTimeout)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("connect to the switch: %w", err)
	}
	c, err := s.open(ctx, nc, true)
	if err != nil {
		return nil, fmt.Errorf("switch at %s: %w", address, err)
	}
	go c.run()
	return c, nil
}

// Keep maintains a connection to a switch that listens: it dials again after each failure, until the context ends. Then it
// closes the connection, and returns after it has ended.
func (s *Server) Keep(ctx context.Context, network, address string) error {
	if err := checkDial(s.tls); err != nil {
		return err
	}
	wait := redialMin
	for ctx.Err() == nil {
		begun := time.Now()
		c, err := s.Dial(ctx, network, address)
		if err == nil {
			stop := context.AfterFunc(ctx, func() { c.shut(closed(CauseShutdown, "this controller ends")) })
			<-c.gone
			stop()
		} else {
			s.lines.say(levelWarn, "cannot connect", "switch", address, "error", err)
		}
		if time.Since(begun) > redialMax { // it worked for some time
			wait = redialMin
		}
		sleep(ctx, wait/2+rand.N(wait/2)) // not all controllers at once
		wait = min(2*wait, redialMax)
	}
	return nil
}
