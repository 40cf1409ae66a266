package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"weir/lab"
)

// streams are TCP connections from some nodes to receiver1 that send as fast as possible until close. The bytes
// received on each can be read at any time.
type streams struct {
	clients, servers []net.Conn
	received         []atomic.Int64
	tasks            sync.WaitGroup
}

// openStreams opens a connection from each of the nodes and starts to send.
func openStreams(l *lab.Lab, nodes []string) (*streams, error) {
	s := &streams{received: make([]atomic.Int64, len(nodes))}
	var err error
	s.clients, s.servers, err = dialAll(l, nodes)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	for i := range nodes {
		s.tasks.Go(func() {
			chunk := make([]byte, 64<<10)
			for {
				if _, err := s.clients[i].Write(chunk); err != nil {
					return
				}
			}
		})
		s.tasks.Go(func() {
			_, _ = io.Copy(counter{&s.received[i]}, s.servers[i])
		})
	}
	return s, nil
}

// counter is a writer that counts.
type counter struct{ *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) {
	c.Add(int64(len(b)))
	return len(b), nil
}

// dialAll opens one connection from each of the nodes to receiver1, and returns both ends of each, also those
// opened before an error.
func dialAll(l *lab.Lab, nodes []string) (clients, servers []net.Conn, err error) {
	var listener net.Listener
	err = l.Enter("receiver1", func() (err error) {
		listener, err = net.Listen("tcp4", netip.AddrPortFrom(l.Addr("receiver1", 0), 0).String())
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	for _, node := range nodes {
		var c net.Conn
		err := l.Enter(node, func() (err error) {
			d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(l.Addr(node, 0), 0))}
			c, err = d.DialContext(context.Background(), "tcp4", listener.Addr().String())
			return err
		})
		if err != nil {
			return clients, servers, fmt.Errorf("connect from %s: %w", node, err)
		}
		clients = append(clients, c)
		if err := listener.(*net.TCPListener).SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return clients, servers, err
		}
		server, err := listener.Accept()
		if err != nil {
			return clients, servers, fmt.Errorf("accept from %s: %w", node, err)
		}
		servers = append(servers, server)
	}
	return clients, servers, nil
}

// totals returns the bytes received on each connection.
func (s *streams) totals() []int64 {
	t := make([]int64, len(s.received))
	for i := range t {
		t[i] = s.received[i].Load()
	}
	return t
}

// rates returns the rate of each connection between two totals, in Mbit/s.
func rates(before, after []int64, took time.Duration) (each []float64, sum float64) {
	for i := range before {
		mbps := float64(after[i]-before[i]) * 8 / took.Seconds() / 1e6
		each, sum = append(each, mbps), sum+mbps
	}
	return each, sum
}

// close resets the connections.
func (s *streams) close() error {
	var errs []error
	for _, c := range append(s.clients, s.servers...) {
		errs = append(errs, c.(*net.TCPConn).SetLinger(0), c.Close())
	}
	s.tasks.Wait()
	s.clients, s.servers = nil, nil
	return errors.Join(errs...)
}

// jain is Jain's index of fairness: 1 when all are equal.
func jain(each []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range each {
		sum, squares = sum+v, squares+v*v
	}
	return sum * sum / (float64(len(each)) * squares)
}

func addrPort(a net.Addr) netip.AddrPort {
	p := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}
