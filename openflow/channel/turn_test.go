package channel

import (
	"bytes"
	"io"
	"runtime"
	"sync"
	"testing"

	"weir/openflow"
)

// endless is a connection on which there is always as much to read as one likes.
type endless struct {
	nowhere
	one      int // bytes of a message
	messages []byte
	over     chan struct{}
}

func (e endless) Read(b []byte) (int, error) {
	select {
	case <-e.over:
		return 0, io.EOF
	default:
		return copy(b[:len(b)/e.one*e.one], e.messages), nil
	}
}

// turns counts how often one connection was served while another waited.
type turns struct {
	Ignore
	mu           sync.Mutex
	last         *Conn
	run, longest int
	left         int
	over         chan struct{} // closed when nothing is left
}

func (h *turns) PacketIn(c *Conn, _ *openflow.PacketIn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c != h.last {
		h.last, h.run = c, 0
	}
	h.run++
	h.longest = max(h.longest, h.run)
	if h.left--; h.left == 0 {
		close(h.over)
	}
}

// TestTurns: switches that never stop talking take turns, though one processor works for all of them.
func TestTurns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	h := &turns{left: 100_000, over: make(chan struct{})}
	const no = 1 << 30
	s, err := NewServer(Config{Handler: h, Limits: Limits{PacketIns: no, PacketInBytes: no, ReadBytes: no}})
	if err != nil {
		t.Fatal(err)
	}
	one := encode(t, 0, packetIn(100))
	messages := bytes.Repeat(one, bufferMax/len(one))
	var all sync.WaitGroup
	for range 3 {
		c := s.newConn(endless{one: len(one), messages: messages, over: h.over}, nil)
		all.Go(func() { _ = c.read() }) // it says that nothing more comes
	}
	all.Wait()
	if most := 2 * bufferMax / len(one); h.longest > most {
		t.Errorf("one was served %d times while others waited, want %d at most", h.longest, most)
	}
}
