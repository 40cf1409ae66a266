package fairq

import (
	"errors"
	"sync"
	"testing"

	"weir/datapath/internal/frames"
)

// Packets of other ports, and sweeps, change a port's count of opened connections at any time. When a port
// ends, or its id is given to another, the program must not write back an old count: the difference would stay
// for ever.
func TestFairQFrames_EndOfPortKeepsCounts(t *testing.T) {
	const connections = 5000
	s := newFrameTable(t, frameConfig{flows: 65536, pending: 16384})
	control := s.controls(t)
	f := &Attachment{maps: &s.fairqMaps, control: &controlPrograms{
		Arm: control.WeirFairqArm, Disarm: control.WeirFairqDisarm, Clear: control.WeirFairqClear,
	}}
	var handshakes [connections][3][]byte
	for i := range handshakes {
		c := s.conn(frames.IP{})
		syn, synAck, ack := c.back(), c.segment(), c.back()
		syn.Flags, syn.Seq, syn.Ack, syn.Options = frames.SYN, 3000, 0, c.syn
		synAck.Flags, synAck.Seq, synAck.Options = frames.SYN|frames.ACK, 7000, c.synAck
		handshakes[i] = [3][]byte{syn.Bytes(), synAck.Bytes(), ack.Bytes()}
	}
	done := make(chan struct{})
	var ending sync.WaitGroup
	ends := 0
	ending.Go(func() {
		for ; ; ends++ {
			select {
			case <-done:
				return
			default:
			}
			for id := range uint32(2) {
				if err := errors.Join(f.clearPort(id), f.stop(id)); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for i := range handshakes {
		for packet, port := range []int{1, 0, 1} {
			s.mustRun(t, port, handshakes[i][packet])
		}
	}
	close(done)
	ending.Wait()
	t.Logf("the ports ended %d times meanwhile", ends)
	s.checkShares(t, connections, 0)
}
