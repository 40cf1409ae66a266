package traffic

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weir/experiment/result"
)

// messageBytes is the size of a request (pull) and of the answer to a push on a persistent connection. These
// messages are sent against the direction of the data, or before it, and do not count as a flow's bytes.
const messageBytes = 64

// notSentLimit limits the unsent data in the socket of an endless sender, so that a stopped flow does not continue
// for seconds with data that was already written.
const notSentLimit = 128 << 10

// maxBacklog asks for the longest queue of connections that wait for accept.
const maxBacklog = 65535

// route is where the connections of a pair of nodes lead.
type route struct {
	client     place
	dialer     opener
	listener   *listener
	pull       bool // the connecting side receives the data
	persistent bool
}

// conn is a TCP connection with both its ends. It carries one flow at a time. The receiving side closes first:
// that informs the other side, without a message, that all data arrived, and no FIN enters the data's queue before
// all data has left it.
type conn struct {
	r     *runner
	route *route
	local netip.AddrPort // the client's address

	client end
	only   *flow      // the one flow of a connection that is not persistent
	work   chan *flow // from the client's goroutine to the server's; closed after the last flow

	mu     sync.Mutex
	server end
	cause  error // of the server's side, if it failed
	ends   int   // goroutines that still use the connection
	dead   bool
	timer  *time.Timer
}

// dial connects, and begins f (which may be nil) at the time just before connect().
func (r *runner) dial(rt *route, f *flow) (*conn, error) {
	o, err := rt.dialer.open(r, rt.listener.addr)
	if err != nil {
		return nil, r.refused(rt, err)
	}
	c := &conn{r: r, route: rt, local: o.local, client: o.end, work: make(chan *flow, 1), ends: 1}
	if f != nil {
		c.only = f
		f.begin(c, o.start)
	}
	if !r.add(c) {
		c.abort()
		return nil, errOver
	}
	rt.listener.expect(c, o.start)
	return c, nil
}

// refused wraps the error of a failed connection and keeps the first for the run's error.
func (r *runner) refused(rt *route, err error) error {
	err = fmt.Errorf("connect %s (%v) to %v: %w", rt.client.node, r.net.Addr(rt.client.node, rt.client.profile), rt.listener.addr, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.firstRefusal == nil {
		r.firstRefusal = err
	}
	return err
}

func (c *conn) key() result.Key {
	return result.Key{Proto: unix.IPPROTO_TCP, Src: c.local, Dst: c.route.listener.addr}
}

// attach passes the server's end to the connection and serves it.
func (c *conn) attach(s end) {
	c.r.met.Add(1)
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		s.Abort()
		return
	}
	c.server = s
	c.ends++
	c.mu.Unlock()
	c.r.spawn(c.serve)
}

// accepted reports whether the server has its end, that is, whether the handshake is over.
func (c *conn) accepted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server != nil
}

// serve is the server's side.
func (c *conn) serve() {
	defer c.leave()
	for f := range c.work {
		if err := c.serveFlow(f); err != nil {
			c.broke(err)
			return
		}
	}
	if c.route.pull {
		if err := drain(c.server); err != nil {
			c.broke(err)
			return
		}
	}
	c.server.Close()
}

// broke ends the connection because the server's side failed. The flow ends with the client's side, which fails
// too.
func (c *conn) broke(err error) {
	c.mu.Lock()
	c.cause = err
	c.mu.Unlock()
	c.abort()
}

// reason returns why the client's side failed with err: the server's error if that came first.
func (c *conn) reason(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, os.ErrClosed) && c.cause != nil {
		return c.cause
	}
	return err
}

func (c *conn) serveFlow(f *flow) error {
	if c.route.pull {
		if err := discardAll(c.server, messageBytes); err != nil {
			return err
		}
		c.r.think(f)
		c.r.declare(f.res.Src, f, c.route.listener.addr, c.local)
		return c.send(c.server, f)
	}
	if err := c.receive(c.server, f); err != nil || !c.route.persistent {
		return err
	}
	_, err := c.server.Write(c.r.zeros[:messageBytes])
	return err
}

// exchange is the client's side of one flow.
func (c *conn) exchange(f *flow) error {
	c.work <- f // never waits: the server has taken the previous flow
	if k, ok := c.client.(*socket); ok && f.counted && f == c.only {
		if now, ok := k.connected(c.r.clock); ok {
			f.wrote(now)
		}
	}
	if c.route.pull {
		if _, err := c.client.Write(c.r.zeros[:messageBytes]); err != nil {
			return c.r.refused(c.route, err)
		}
		return c.receive(c.client, f)
	}
	c.r.declare(f.res.Src, f, c.local, c.route.listener.addr)
	if err := c.send(c.client, f); err != nil || !c.route.persistent {
		return err
	}
	return discardAll(c.client, messageBytes)
}

// quit ends the client's side; a cause makes it a reset. It returns the cause, or the error of the orderly end.
func (c *conn) quit(cause error) error {
	defer c.leave()
	close(c.work)
	if cause == nil && !c.route.pull {
		cause = drain(c.client)
	}
	if cause != nil {
		c.abort()
		return c.reason(cause)
	}
	c.client.Close()
	return nil
}

// send writes a flow's bytes. A flow that is stopped as planned ends with FIN.
func (c *conn) send(s end, f *flow) error {
	left := f.size
	if k, ok := s.(*socket); ok && f.size == 0 {
		k.limitUnsent(notSentLimit)
	}
	write := s.Write
	if f.rate > 0 {
		write = c.paced(s, f)
	}
	for f.size == 0 || left > 0 {
		chunk := c.r.zeros
		if f.size > 0 && left < int64(len(chunk)) {
			chunk = chunk[:left]
		}
		n, err := write(chunk)
		left -= int64(n)
		if errors.Is(err, os.ErrDeadlineExceeded) && f.hasEnded() {
			s.CloseWrite()
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// paced returns a writer at f.rate payload bits per second: every paceStep it writes all bytes that are due.
func (c *conn) paced(s end, f *flow) func([]byte) (int, error) {
	begin, sent := c.r.clock.now(), int64(0)
	step := max(1, int64(float64(f.rate)*paceStep.Seconds()/8))
	return func(chunk []byte) (int, error) {
		for {
			due := int64(float64(c.r.clock.now()-begin)*float64(f.rate)/8e9) - sent
			if due >= min(step, int64(len(chunk))) {
				n, err := s.Write(chunk[:min(due, int64(len(chunk)))])
				sent += int64(n)
				return n, err
			}
			if f.hasEnded() {
				return 0, os.ErrDeadlineExceeded
			}
			time.Sleep(paceStep)
		}
	}
}

const paceStep = 2 * time.Millisecond

// receive counts a flow's bytes as they arrive.
func (c *conn) receive(s end, f *flow) error {
	left := f.size
	for {
		want := int64(maxRead)
		if f.size > 0 {
			want = min(want, left)
		}
		n, err := s.Discard(int(want))
		if errors.Is(err, io.EOF) {
			if f.hasEnded() {
				return nil
			}
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		left -= int64(n)
		if f.received(n, c.r.clock.now()) {
			return nil
		}
		if f.size > 0 && left == 0 {
			return nil // complete, but after its end
		}
	}
}

// stopSending makes the sender of an endless flow end it, and resets the connection if that takes too long.
func (c *conn) stopSending() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return
	}
	sender := c.client
	if c.route.pull {
		sender = c.server
	}
	if sender == nil {
		c.timer = time.AfterFunc(0, c.abort)
		return
	}
	sender.StopWriting()
	c.timer = time.AfterFunc(c.r.drain, c.abort)
}

// abort resets both ends, which wakes both goroutines.
func (c *conn) abort() {
	c.mu.Lock()
	c.dead = true
	server := c.server
	c.mu.Unlock()
	c.client.Abort()
	if server != nil {
		server.Abort()
	}
}

// leave is called by each end's goroutine when it no longer uses the connection.
func (c *conn) leave() {
	c.mu.Lock()
	c.ends--
	last := c.ends == 0
	if last {
		c.dead = true
		if c.timer != nil {
			c.timer.Stop()
		}
	}
	c.mu.Unlock()
	if !last {
		return
	}
	if c.only != nil {
		c.only.addCounts(c.counts())
	}
	c.route.listener.forget(c)
	c.r.remove(c)
}

// counts returns the counts of both ends so far.
func (c *conn) counts() counts {
	c.mu.Lock()
	server := c.server
	c.mu.Unlock()
	if server == nil {
		return c.client.counts()
	}
	return c.client.counts().and(server.counts())
}
