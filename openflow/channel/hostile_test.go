package channel

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/openflow"
)

// TestHostile: hostile peers do not affect a switch that is connected at the same time. Its barriers take none of the bubble's
// time, and its packet-ins arrive. Each hostile peer is ended or bounded by its own limit.
func TestHostile(t *testing.T) {
	limits := Limits{Messages: 100, PacketIns: 400, HalfOpen: 8, MessageBytes: 4096, ReplyBytes: queueMin}
	inWorld(t, Config{Limits: limits}, func(w *world) {
		good, c := w.join(1)
		good.live(nil)
		var floods sync.WaitGroup
		flood := func(f *fakeSwitch, m openflow.Message) {
			floods.Go(func() {
				for b := encode(t, 9, m); ; {
					if _, err := f.nc.Write(b); err != nil {
						return
					}
					time.Sleep(ms / 10) // ten thousand a second
				}
			})
		}
		begin := func(id uint64) *fakeSwitch {
			f, _ := w.join(id)
			return f
		}
		packets, echoes, strange, version, endless, loris, deaf := begin(2), begin(3), begin(4), w.connect(), begin(5), w.connect(), begin(6)
		for _, f := range []*fakeSwitch{packets, echoes, strange, version, endless, loris} {
			f.drain()
		}
		flood(packets, packetIn(60))
		flood(echoes, &openflow.EchoRequest{})
		flood(strange, part(true, 1))
		flood(deaf, &openflow.PortStatus{}) // and never reads
		go func() { _, _ = version.nc.Write(hello(1)) }()
		go func() { _, _ = endless.nc.Write([]byte{4, 10, 0xff, 0xff, 0, 0, 0, 0}) }()
		go func() { _, _ = loris.nc.Write([]byte{4}) }()
		for range 200 {
			time.Sleep(100 * ms)
			begun := time.Now()
			if err := c.Barrier(w.t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took > 0 {
				t.Fatalf("a barrier took %v", took)
			}
		}
		st := w.server.Stats()
		for cause, want := range map[Cause]uint64{CauseVersion: 1, CauseMalformed: 1, CauseHandshake: 1, CauseSlowReader: 1} {
			if st.Ended[cause] != want {
				t.Errorf("%d ended for %s, want %d: %v", st.Ended[cause], cause, want, st.Ended)
			}
		}
		if st.Switches != 4 || c.Err() != nil { // the good one and the three that only talk too much
			t.Errorf("%+v, %v", st, c.Err())
		}
		if got := w.server.Conn(2).Stats(); got.PacketInsDropped < 100_000 || got.In[openflow.TypePacketIn]-got.PacketInsDropped > 100+20*400+1 {
			t.Errorf("%d packet-ins, %d dropped", got.In[openflow.TypePacketIn], got.PacketInsDropped)
		}
		for _, id := range []uint64{3, 4} { // 100 at once, 100 a second for 20 s
			got := w.server.Conn(id).Stats()
			if n := got.In[openflow.TypeEchoRequest] + got.In[openflow.TypeMultipartReply]; n > 100+20*100+5 || n < 1900 {
				t.Errorf("%d messages of switch %d were taken", n, id)
			}
		}
		if lines := strings.Count(w.log.String(), "\n"); lines > 100 {
			t.Errorf("%d lines in the log", lines)
		}
		for _, f := range []*fakeSwitch{packets, echoes, strange} {
			_ = f.nc.Close()
		}
		floods.Wait()
	})
}

// drain reads and throws away, in the background.
func (f *fakeSwitch) drain() {
	go func() { _ = f.hangup() }()
}

// failing gives errors before it accepts.
type failing struct {
	*pipes
	errs chan error
}

func (f *failing) Accept() (net.Conn, error) {
	select {
	case err := <-f.errs:
		return nil, err
	default:
		return f.pipes.Accept()
	}
}

type temporary struct{ error }

func (temporary) Temporary() bool { return true }
func (temporary) Timeout() bool   { return false }

// TestServe_AcceptFails: without descriptors it tries again, later and later; a broken listener ends it.
func TestServe_AcceptFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewServer(Config{})
		if err != nil {
			t.Fatal(err)
		}
		l := &failing{pipes: newPipes(), errs: make(chan error, 5)}
		for range 4 {
			l.errs <- temporary{errors.New("no descriptors")}
		}
		broken := errors.New("broken")
		l.errs <- broken
		begun := time.Now()
		if err := s.Serve(context.Background(), l); !errors.Is(err, broken) {
			t.Error(err)
		}
		if took := time.Since(begun); took != (5+10+20+40)*ms {
			t.Errorf("it waited %v", took)
		}
	})
}
