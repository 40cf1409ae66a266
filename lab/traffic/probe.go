package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
	"weir/internal/alarm"

	"golang.org/x/sys/unix"
)

// pings is the number of round trips whose median RTT returns, after some to warm up.
const (
	pings       = 101
	warmUpPings = 10
	pingLimit   = 20 * time.Second // for one answer, on a busy machine
)

// RTT measures the round trip between two nodes on the idle network: the median of 1-byte ping-pongs over TCP. It
// includes the time to wake the two programs.
func RTT(ctx context.Context, net Net, src, dst string, profile int) (time.Duration, error) {
	rtt, err := rttOf(ctx, net, src, dst, profile)
	if err != nil {
		return 0, fmt.Errorf("measure the round trip %s-%s: %w", src, dst, err)
	}
	return rtt, nil
}

func rttOf(ctx context.Context, net Net, src, dst string, profile int) (time.Duration, error) {
	to, err := addressOf(net, place{dst, profile})
	if err != nil {
		return 0, err
	}
	from, err := addressOf(net, place{src, profile})
	if err != nil {
		return 0, err
	}
	a, err := newAcceptor(net, place{dst, profile}, netip.AddrPortFrom(to, 0))
	if err != nil {
		return 0, err
	}
	o := newOpener(net, place{src, profile}, from)
	defer o.close()
	var servers sync.WaitGroup
	defer servers.Wait()
	defer a.close()
	servers.Go(func() {
		// The client sees errors of this side as well.
		_ = a.accept(func(_ netip.AddrPort, e end) { servers.Go(func() { echo(ctx, e) }) })
	})
	client, err := o.open(&runner{clock: newClock(), fail: func(error) {}}, a.address())
	if err != nil {
		return 0, err
	}
	defer client.end.Close()
	defer context.AfterFunc(ctx, client.end.Abort)()
	limit := time.AfterFunc(pingLimit, client.end.Abort)
	defer limit.Stop()
	rtt, err := pingPong(client.end, func() { limit.Reset(pingLimit) })
	if errors.Is(err, os.ErrClosed) && ctx.Err() == nil {
		err = fmt.Errorf("an answer did not come within %v", pingLimit)
	}
	return rtt, err
}

// echo answers every byte until the peer has closed, or the time limit of the measurement.
func echo(ctx context.Context, e end) {
	defer e.Close()
	defer context.AfterFunc(ctx, e.Abort)()
	limit := time.AfterFunc(pingLimit, e.Abort)
	defer limit.Stop()
	one := make([]byte, 1)
	for {
		if _, err := e.Discard(1); err != nil {
			return
		}
		limit.Reset(pingLimit)
		if _, err := e.Write(one); err != nil {
			return
		}
	}
}

// pingPong measures round trips; the first write waits for the handshake. It calls answered after each answer.
func pingPong(client end, answered func()) (time.Duration, error) {
	one := make([]byte, 1)
	var times []time.Duration
	for i := range warmUpPings + pings {
		start := time.Now()
		if _, err := client.Write(one); err != nil {
			return 0, err
		}
		if _, err := client.Discard(1); err != nil {
			return 0, err
		}
		answered()
		if i >= warmUpPings {
			times = append(times, time.Since(start))
		}
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// openSocket opens a socket of the kernel bound to any port of a node's address.
func openSocket(net Net, p place, socket func() (int, error)) (int, error) {
	addr, err := addressOf(net, p)
	if err != nil {
		return -1, err
	}
	if net.Guest(p.node, p.profile) != nil {
		return -1, fmt.Errorf("node %s, profile %d: %w", p.node, p.profile, errForeign)
	}
	fd := -1
	err = net.Enter(p.node, func() error {
		var err error
		if fd, err = socket(); err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: addr.As4()}); err != nil {
			return fmt.Errorf("bind to %v: %w", addr, err)
		}
		return nil
	})
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return -1, fmt.Errorf("open a socket in %s: %w", p.node, err)
	}
	return fd, nil
}

func newUDP() (int, error) {
	return unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
}

// Sample is one round trip that Probe measured.
type Sample struct {
	At  int64         // CLOCK_MONOTONIC of sending, ns
	RTT time.Duration // 0: no answer
}

// probeBytes is the payload of a probe: a frame of 58 B, too small to affect the queues.
const probeBytes = 16

// probeTail is how long Probe waits for the last answers.
const probeTail = 300 * time.Millisecond

// Probe sends a small UDP packet from src to dst at this interval until ctx is done, and measures the time until
// its echo. Under load this includes the queues in both directions. Each probe is sent at its time, whether or not
// the previous one was answered.
func Probe(ctx context.Context, net Net, src, dst string, profile int, every time.Duration) ([]Sample, error) {
	p, err := newProber(net, src, dst, profile)
	if err != nil {
		return nil, fmt.Errorf("probe %s-%s: %w", src, dst, err)
	}
	defer p.close()
	timer, err := alarm.New()
	if err != nil {
		return nil, err
	}
	defer timer.Close()
	defer timer.CloseWhen(ctx)()
	p.tasks.Go(p.answer)
	p.tasks.Go(p.collect)
	for next := p.clock.now(); ctx.Err() == nil && timer.Wait(next); next += int64(every) {
		if err := p.send(); err != nil {
			return nil, fmt.Errorf("probe %s-%s: %w", src, dst, err)
		}
	}
	_ = p.client.SetReadDeadline(time.Now().Add(probeTail)) // ends collect
	p.collected.Wait()
	return p.samples, nil
}

type prober struct {
	clock          clock
	client, server *os.File
	tasks          sync.WaitGroup
	collected      sync.WaitGroup
	mu             sync.Mutex
	samples        []Sample
}

func newProber(net Net, src, dst string, profile int) (*prober, error) {
	server, err := openSocket(net, place{dst, profile}, newUDP)
	if err != nil {
		return nil, err
	}
	client, err := openSocket(net, place{src, profile}, newUDP)
	if err != nil {
		unix.Close(server)
		return nil, err
	}
	from, err1 := localAddr(client)
	to, err2 := localAddr(server)
	if err := errors.Join(err1, err2, unix.Connect(client, sockaddr(to)), unix.Connect(server, sockaddr(from))); err != nil {
		closeAll([]int{client, server})
		return nil, err
	}
	p := &prober{clock: newClock(), client: os.NewFile(uintptr(client), "probe"), server: os.NewFile(uintptr(server), "echo")}
	p.collected.Add(1)
	return p, nil
}

func (p *prober) send() error {
	var b [probeBytes]byte
	p.mu.Lock()
	binary.BigEndian.PutUint64(b[:], uint64(len(p.samples)))
	p.samples = append(p.samples, Sample{At: p.clock.now()})
	p.mu.Unlock()
	_, err := p.client.Write(b[:])
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil // the echo of an earlier probe; the samples show that it is missing
	}
	return err
}

// answer echoes probes at the far side.
func (p *prober) answer() {
	b := make([]byte, probeBytes)
	for {
		n, err := p.server.Read(b)
		if err != nil {
			return
		}
		if _, err := p.server.Write(b[:n]); err != nil {
			return
		}
	}
}

// collect records the answers.
func (p *prober) collect() {
	defer p.collected.Done()
	b := make([]byte, probeBytes)
	for {
		n, err := p.client.Read(b)
		if err != nil {
			return
		}
		now := p.clock.now()
		p.mu.Lock()
		if i := binary.BigEndian.Uint64(b); n == probeBytes && i < uint64(len(p.samples)) {
			p.samples[i].RTT = time.Duration(now - p.samples[i].At)
		}
		p.mu.Unlock()
	}
}

func (p *prober) close() {
	p.client.Close()
	p.server.Close()
	p.tasks.Wait()
}
