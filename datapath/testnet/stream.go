package testnet

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Streams are TCP connections from the sender to the receiver that send without end, with what the receiver saw
// of each.
type Streams struct {
	list  []*stream
	stop  atomic.Bool
	ended chan struct{}
	pause Pause
	wg    sync.WaitGroup
}

type stream struct {
	pair  *Pair
	bytes atomic.Int64
	last  atomic.Int64          // when bytes last arrived, ns since began
	gap   atomic.Int64          // the longest time without bytes since Mark
	err   atomic.Pointer[error] // why it broke
}

var began = time.Now()

func sinceBegan() int64 { return int64(time.Since(began)) }

// streamBuffers is the size of the buffers of all streams together at each end, in bytes: what 100 Mbit/s carry
// in 2.5 s. So the streams continue, in the kernel, while a busy machine keeps this process waiting.
const streamBuffers = 32 << 20

// streamWake is how many bytes have to wait at the receiver before this process reads them: a wake-up for each segment
// costs more than the segment.
const streamWake = 8 << 10

// NewStreams connects n streams and lets them send for the length of the test. It returns when bytes of every
// stream have arrived.
func (p *Path) NewStreams(tb testing.TB, ip net.IP, n int, list ...SocketOption) *Streams {
	tb.Helper()
	list = append([]SocketOption{Buffers(streamBuffers / n), wakeAt(streamWake)}, list...)
	l := p.Listen(tb, ip, list...)
	s := &Streams{ended: make(chan struct{})}
	tb.Cleanup(s.Stop)
	s.wg.Go(func() { s.pause.Watch(s.ended) })
	for range n {
		one := &stream{pair: p.Dial(tb, l, list...)}
		one.last.Store(sinceBegan())
		s.list = append(s.list, one)
		s.wg.Add(2)
		go func() { defer s.wg.Done(); s.send(one) }()
		go func() { defer s.wg.Done(); s.receive(one) }()
	}
	s.Progress(tb, 1)
	s.Mark()
	return s
}

// Buffers sets a socket's buffers to this many bytes each way, whatever the machine's limits are.
func Buffers(bytes int) SocketOption {
	return func(fd int) error {
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, bytes),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes),
		)
	}
}

// wakeAt lets a reader wait until so many bytes are there.
func wakeAt(bytes int) SocketOption {
	return func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, bytes) }
}

func (s *Streams) send(one *stream) {
	b := make([]byte, 64<<10)
	for {
		if _, err := one.pair.Client.Write(b); err != nil {
			s.broke(one, err)
			return
		}
	}
}

func (s *Streams) receive(one *stream) {
	b := make([]byte, 256<<10)
	for {
		n, err := one.pair.Server.Read(b)
		if err != nil {
			s.broke(one, err)
			return
		}
		now := sinceBegan()
		gap := now - one.last.Swap(now)
		for old := one.gap.Load(); gap > old && !one.gap.CompareAndSwap(old, gap); old = one.gap.Load() {
		}
		one.bytes.Add(int64(n))
	}
}

func (s *Streams) broke(one *stream, err error) {
	if !s.stop.Load() {
		one.err.CompareAndSwap(nil, &err)
	}
}

// Stop closes the streams.
func (s *Streams) Stop() {
	if s.stop.Swap(true) {
		return
	}
	close(s.ended)
	for _, one := range s.list {
		one.pair.Close()
	}
	s.wg.Wait()
}

// Mark begins the measurement of LongestGap and Stall.
func (s *Streams) Mark() {
	s.pause.Mark()
	for _, one := range s.list {
		one.gap.Store(0)
		one.last.Store(sinceBegan())
	}
}

// LongestGap returns the longest time since Mark without a byte of some stream at its receiver.
func (s *Streams) LongestGap() (longest time.Duration) {
	for _, one := range s.list {
		longest = max(longest, time.Duration(one.gap.Load()), time.Duration(sinceBegan()-one.last.Load()))
	}
	return longest
}

// Paused returns the longest time since Mark that this process was kept from running.
func (s *Streams) Paused() time.Duration { return s.pause.Longest() }

// Stall is LongestGap without what the machine may have added. A byte that arrives has waited for its sender, for an ACK
// of the bytes before, and for its receiver, each as long as the longest time that this process was kept from running.
func (s *Streams) Stall() time.Duration {
	return max(0, s.LongestGap()-3*s.pause.Longest())
}

// Bytes returns the bytes that have arrived of all streams.
func (s *Streams) Bytes() (sum int64) {
	for _, one := range s.list {
		sum += one.bytes.Load()
	}
	return sum
}

// Progress waits until so many bytes more have arrived of every stream. It fails if a stream broke or made no
// progress. A stream that was starved before may have to wait for its retransmission timer, which TCP doubles
// with each timeout: seven in a row, from 200 ms on, are 25 s.
func (s *Streams) Progress(tb testing.TB, bytes int64) {
	tb.Helper()
	before := make([]int64, len(s.list))
	for i, one := range s.list {
		before[i] = one.bytes.Load()
	}
	s.until(tb, func(i int) bool {
		one := s.list[i]
		if err := one.err.Load(); err != nil {
			tb.Fatalf("stream %d broke: %v", i, *err)
		}
		return one.bytes.Load() >= before[i]+bytes
	})
}

// until waits until far is true for every stream.
func (s *Streams) until(tb testing.TB, far func(i int) bool) {
	tb.Helper()
	for l := newLooks(tb); ; {
		late := 0
		for late < len(s.list) && far(late) {
			late++
		}
		if late == len(s.list) {
			return
		}
		if l.wait() {
			info := ReadTCPInfo(tb, s.list[late].pair.Client)
			tb.Fatalf("no progress within %v: stream %d: %d timeouts in a row, RTO %d ms, sent %d ms ago, %d segments out, %d lost, window %d segments",
				time.Since(l.began).Round(time.Second), late, info.Backoff, info.Rto/1000, info.Last_data_sent, info.Unacked, info.Lost, info.Snd_cwnd)
		}
	}
}

// Pair returns the connection of stream i.
func (s *Streams) Pair(i int) *Pair { return s.list[i].pair }
