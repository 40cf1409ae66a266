package netstack

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// Conn is one end of a TCP connection. At most one goroutine may read, and one write.
type Conn struct {
	guest *Guest
	ep    tcpip.Endpoint
	queue *waiter.Queue
	id    atomic.Pointer[handshake] // set once there is a handshake

	readable, writable    chan struct{}
	readEntry, writeEntry waiter.Entry
	closed, stopped       chan struct{}
	closeOnce, stopOnce   sync.Once
	broken                atomic.Pointer[error] // the first failure: netstack returns it only once
	timeouts              atomic.Int32          // set when it was closed

	sink   sink
	source bytes.Reader
}

// NewConn returns a connection for Connect.
func (g *Guest) NewConn() (*Conn, error) {
	queue := &waiter.Queue{}
	ep, err := g.stack.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, queue)
	if err != nil {
		return nil, goError(err)
	}
	return g.newConn(ep, queue), nil
}

func (g *Guest) newConn(ep tcpip.Endpoint, queue *waiter.Queue) *Conn {
	c := &Conn{guest: g, ep: ep, queue: queue, closed: make(chan struct{}), stopped: make(chan struct{})}
	const ends = waiter.EventHUp | waiter.EventErr
	c.readEntry, c.readable = waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventRdHUp | ends)
	c.writeEntry, c.writable = waiter.NewChannelEntry(waiter.WritableEvents | ends)
	queue.EventRegister(&c.readEntry)
	queue.EventRegister(&c.writeEntry)
	return c
}

// Connect sends the SYN and returns at once, with the connection's local address. Reading and writing wait for the
// answer.
func (c *Conn) Connect(server netip.AddrPort) (local netip.AddrPort, err error) {
	e := c.ep.Connect(fullAddress(server))
	if _, started := e.(*tcpip.ErrConnectStarted); e != nil && !started {
		return netip.AddrPort{}, goError(e)
	}
	a, e := c.ep.GetLocalAddress()
	if e != nil {
		return netip.AddrPort{}, goError(e)
	}
	local = addrPort(a)
	c.id.Store(&handshake{address(server.Addr()), server.Port(), local.Port()})
	return local, nil
}

// Discard waits for data and discards at most want bytes of it; io.EOF when the peer has closed.
func (c *Conn) Discard(want int) (int, error) {
	for {
		c.sink.left = want
		r, err := c.ep.Read(&c.sink, tcpip.ReadOptions{})
		if err == nil {
			c.ep.ModerateRecvBuf(r.Count)
			return r.Count, nil
		}
		if _, nothing := err.(*tcpip.ErrWouldBlock); !nothing {
			return 0, c.failure(err)
		}
		select {
		case <-c.readable:
		case <-c.closed:
			return 0, os.ErrClosed
		}
	}
}

// sink accepts at most this many bytes and stores none.
type sink struct{ left int }

func (s *sink) Write(p []byte) (int, error) {
	if len(p) > s.left {
		n := s.left
		s.left = 0
		return n, io.ErrShortWrite
	}
	s.left -= len(p)
	return len(p), nil
}

// Write waits until the stack has accepted all of p. After StopWriting it returns os.ErrDeadlineExceeded, with the
// number of bytes accepted before.
func (c *Conn) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		select {
		case <-c.stopped:
			return done, os.ErrDeadlineExceeded
		default:
		}
		c.source.Reset(p[done:])
		n, err := c.ep.Write(&c.source, tcpip.WriteOptions{})
		done += int(n)
		if err == nil {
			continue
		}
		if _, full := err.(*tcpip.ErrWouldBlock); !full {
			return done, c.failure(err)
		}
		select {
		case <-c.writable:
		case <-c.stopped:
		case <-c.closed:
			return done, os.ErrClosed
		}
	}
	return done, nil
}

// failure converts an error of the endpoint for its reader or writer. Both get the first error: netstack returns
// it to one of them, and to the other a normal end.
func (c *Conn) failure(err tcpip.Error) error {
	select {
	case <-c.closed:
		return os.ErrClosed
	default:
	}
	e := goError(err)
	if errors.Is(e, io.EOF) && tcp.EndpointState(c.ep.State()) == tcp.StateError {
		e = unix.ECONNRESET
	} else if errors.Is(e, io.EOF) {
		return e
	}
	c.broken.CompareAndSwap(nil, &e)
	return *c.broken.Load()
}

// StopWriting ends a write in progress, and all later ones.
func (c *Conn) StopWriting() { c.stopOnce.Do(func() { close(c.stopped) }) }

// CloseWrite ends the sending direction (FIN).
func (c *Conn) CloseWrite() {
	_ = c.ep.Shutdown(tcpip.ShutdownWrite) // fails only if the connection is gone
}

// Timeouts returns the number of retransmission timeouts so far, including the handshake's, also after Close; -1:
// not known.
func (c *Conn) Timeouts() int {
	select {
	case <-c.closed:
		return int(c.timeouts.Load())
	default:
		return c.count()
	}
}

func (c *Conn) count() int {
	id := c.id.Load()
	stats, ok := c.ep.Stats().(*tcp.Stats)
	if id == nil || !ok {
		return -1
	}
	n := c.guest.link.syns.timeouts(*id)
	if n < 0 {
		return -1
	}
	return n + int(stats.SendErrors.Timeouts.Value())
}

// noteTrouble is called before the connection is closed, because a closed connection has no buffer space.
func (c *Conn) noteTrouble() {
	if stats, ok := c.ep.Stats().(*tcp.Stats); ok {
		c.guest.dropped.Add(int64(stats.ReceiveErrors.SegmentQueueDropped.Value()))
	}
	s, err := senderOf(c.ep, c.guest.stack.Clock().NowMonotonic())
	if err != nil {
		c.guest.unread.CompareAndSwap(nil, &err)
	}
	if s.stuck() {
		c.guest.stuck.Add(1)
	}
}

// Close ends the connection in the normal way (FIN). After the first call, Close and Abort do nothing.
func (c *Conn) Close() { c.end(false) }

// Abort ends the connection with a reset and wakes its reader and writer.
func (c *Conn) Abort() { c.end(true) }

func (c *Conn) end(reset bool) {
	c.closeOnce.Do(func() {
		c.timeouts.Store(int32(c.count()))
		c.noteTrouble()
		close(c.closed)
		if reset {
			c.ep.SocketOptions().SetLinger(tcpip.LingerOption{Enabled: true})
		}
		c.ep.Close()
		c.queue.EventUnregister(&c.readEntry)
		c.queue.EventUnregister(&c.writeEntry)
		if id := c.id.Load(); id != nil {
			c.guest.link.syns.forget(*id)
		}
	})
}
