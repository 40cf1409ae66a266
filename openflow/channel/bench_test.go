package channel

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/openflow"
)

// The switches of the benchmarks are another process: its processor time is not the controller's.
const generatorEnv = "WEIR_CHANNEL_GENERATOR" // ADDRESS CONNECTIONS WINDOW

func TestMain(m *testing.M) {
	if args := strings.Fields(os.Getenv(generatorEnv)); len(args) == 3 {
		generate(args[0], number(args[1]), number(args[2]))
		return
	}
	os.Exit(m.Run())
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// generate is many switches. Each has so many packet-ins out, and sends another for each flow-mod.
func generate(address string, connections, window int) {
	one, err := openflow.Append(nil, 0, samplePacketIn())
	if err != nil {
		panic(err)
	}
	var all sync.WaitGroup
	for i := range connections {
		nc, err := net.Dial("tcp", address)
		if err != nil {
			panic(err)
		}
		all.Go(func() { flood(nc, uint64(i+1), one, window) })
	}
	all.Wait()
}

// flood is one of them, until the controller hangs up.
func flood(nc net.Conn, id uint64, packetIn []byte, window int) {
	r, w := bufio.NewReaderSize(nc, 64<<10), bufio.NewWriterSize(nc, 64<<10)
	_, _ = w.Write(hello(openflow.Version13))
	for {
		if r.Buffered() < openflow.HeaderLen && w.Flush() != nil {
			return
		}
		head, err := r.Peek(openflow.HeaderLen)
		if err != nil {
			return
		}
		t, n, xid := openflow.Type(head[1]), int(binary.BigEndian.Uint16(head[2:])), binary.BigEndian.Uint32(head[4:])
		body, err := r.Peek(n)
		if err != nil {
			return
		}
		var answer []byte
		switch t {
		case openflow.TypeFeaturesRequest:
			answer, _ = openflow.Append(nil, xid, &openflow.FeaturesReply{DatapathID: id})
		case openflow.TypeEchoRequest:
			answer, _ = openflow.Append(nil, xid, &openflow.EchoReply{})
		case openflow.TypeRoleRequest:
			var m openflow.RoleRequest
			_ = m.DecodeBody(body[openflow.HeaderLen:])
			if m.Role == openflow.RoleNoChange {
				m.Role, m.GenerationID = openflow.RoleMaster, 1
			}
			answer, _ = openflow.Append(nil, xid, &openflow.RoleReply{Role: m.Role, GenerationID: m.GenerationID})
		case openflow.TypeSetAsync: // begin
			for range window {
				_, _ = w.Write(packetIn)
			}
		case openflow.TypeFlowMod:
			answer = packetIn
		}
		_, _ = w.Write(answer)
		if _, err := r.Discard(n); err != nil {
			return
		}
	}
}

// counting is learning that signals a number of messages.
type counting struct {
	learning
	ups    chan *Conn
	left   atomic.Int64
	enough chan struct{}
}

func (h *counting) Up(c *Conn) {
	h.learning.Up(c)
	h.ups <- c
}

func (h *counting) PacketIn(c *Conn, in *openflow.PacketIn) {
	h.learning.PacketIn(c, in)
	if h.left.Add(-1) == 0 {
		close(h.enough)
	}
}

// BenchmarkPacketIn goes from the socket through decoder, handler and encoder to the socket. msg/cpu-s: packet-ins that
// became flow-mods for each second of processor time of this process, the kernel's share with it.
func BenchmarkPacketIn(b *testing.B) {
	for _, c := range []struct{ connections, window int }{{1, 256}, {100, 16}, {1000, 4}} {
		b.Run(fmt.Sprintf("connections=%d", c.connections), func(b *testing.B) {
			h := &counting{ups: make(chan *Conn, c.connections), enough: make(chan struct{})}
			conns := benchConns(b, h, c.connections, c.window)
			h.left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			before := processorTime()
			for _, conn := range conns {
				if _, err := conn.Send(&openflow.SetAsync{}); err != nil {
					b.Fatal(err)
				}
			}
			<-h.enough
			spent := processorTime() - before
			b.StopTimer()
			b.ReportMetric(float64(b.N)/spent.Seconds(), "msg/cpu-s")
		})
	}
}

// BenchmarkMemory is what an idle connection costs: heap and stacks, its share of the server with them.
func BenchmarkMemory(b *testing.B) {
	const connections = 1000
	for range b.N {
		before := memory()
		h := &counting{ups: make(chan *Conn, connections)}
		conns := benchConns(b, h, connections, 0)
		after := memory()
		b.ReportMetric(float64(after-before)/connections, "B/connection")
		runtime.KeepAlive(conns)
	}
}

func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchConns returns connections to the switches of another process, MASTER of each.
func benchConns(b *testing.B, h *counting, connections, window int) []*Conn {
	b.Helper()
	const no = 1 << 30
	s, err := NewServer(Config{Handler: h, Limits: Limits{
		PerAddress: connections, HalfOpen: connections, PacketIns: no, PacketInBytes: no, Messages: no, ReadBytes: no,
	}})
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	generator := exec.Command(os.Args[0])
	generator.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", generatorEnv, l.Addr(), connections, window))
	generator.Stdout, generator.Stderr = io.Discard, os.Stderr
	if err := generator.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			b.Error(err)
		}
		_ = generator.Wait() // it ends with its connections
	})
	conns := make([]*Conn, connections)
	for i := range conns {
		conns[i] = <-h.ups
		if err := conns[i].SetRole(ctx, openflow.RoleMaster, 1); err != nil {
			b.Fatal(err)
		}
	}
	return conns
}
