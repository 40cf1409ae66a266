package netstack

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"weir/datapath/testnet"
)

func TestUnmetSaysWhatIsNotAsAsked(t *testing.T) {
	all := Settings{CC: "bbr", ECN: true, InitialWindow: 4, RTOMin: time.Millisecond, InitialRTO: 3 * time.Second, DelayedACK: true}
	var keys []string
	for _, u := range all.Unmet() {
		keys = append(keys, u.Key+" "+u.Value)
	}
	want := []string{"cc bbr", "ecn true", "initial_window 4", "initial_rto 3s", "delayed_ack true"}
	if len(keys) != len(want) {
		t.Fatalf("%v, want %v", keys, want)
	}
	for i := range want {
		if keys[i] != want[i] {
			t.Errorf("%q, want %q", keys[i], want[i])
		}
	}
	if list := Defaults().Unmet(); len(list) != 0 {
		t.Errorf("the defaults are refused: %v", list)
	}
}

func TestSettingsReachTheStack(t *testing.T) {
	for _, s := range []Settings{
		{CC: "cubic", SACK: true, RTOMin: 10 * time.Millisecond}, {CC: "reno", RTOMin: 300 * time.Millisecond}, {CC: "dctcp"},
	} {
		st := stack.New(stack.Options{TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol}})
		if err := s.apply(st); err != nil {
			t.Fatal(err)
		}
		var (
			cc     tcpip.CongestionControlOption
			sack   tcpip.TCPSACKEnabled
			rtoMin tcpip.TCPMinRTOOption
		)
		for _, o := range []tcpip.GettableTransportProtocolOption{&cc, &sack, &rtoMin} {
			if err := st.TransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
				t.Fatal(err)
			}
		}
		want := s
		if want.CC == "dctcp" {
			want.CC = "reno"
		}
		if want.RTOMin == 0 {
			want.RTOMin = tcp.MinRTO
		}
		if string(cc) != want.CC || bool(sack) != want.SACK || time.Duration(rtoMin) != want.RTOMin {
			t.Errorf("%+v: the stack has %q, SACK %v, least RTO %v", s, cc, sack, time.Duration(rtoMin))
		}
		st.Destroy()
	}
}

func TestErrorsAreTheKernels(t *testing.T) {
	for _, c := range []struct {
		err  tcpip.Error
		want error
	}{
		{nil, nil}, {&tcpip.ErrConnectionReset{}, unix.ECONNRESET}, {&tcpip.ErrConnectionRefused{}, unix.ECONNREFUSED},
		{&tcpip.ErrTimeout{}, unix.ETIMEDOUT}, {&tcpip.ErrClosedForReceive{}, io.EOF}, {&tcpip.ErrPortInUse{}, unix.EADDRINUSE},
		{&tcpip.ErrNoPortAvailable{}, unix.EADDRNOTAVAIL}, {&tcpip.ErrAborted{}, unix.ECONNABORTED},
	} {
		if got := goError(c.err); !errors.Is(got, c.want) {
			t.Errorf("%v is %v, want %v", c.err, got, c.want)
		}
	}
	if err := goError(&tcpip.ErrMalformedHeader{}); err == nil || err.Error() == "" {
		t.Errorf("an error without a name of its own is %v", err)
	}
}

// The form in which the kernel leaves a checksum to a network card: the sum from an offset on, and where to store
// it.
func TestFinishChecksum(t *testing.T) {
	frame := make([]byte, 61) // an odd length: the last byte counts as the upper one of a word
	for i := range frame {
		frame[i] = byte(i * 7)
	}
	const start, offset = 34, 16
	virtio := make([]byte, virtioHeader)
	virtio[0] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM
	binary.NativeEndian.PutUint16(virtio[6:], start)
	binary.NativeEndian.PutUint16(virtio[8:], offset)
	pseudo := uint16(0x1234)
	binary.BigEndian.PutUint16(frame[start+offset:], pseudo)
	want := ^slowSum(append(append([]byte{}, frame[start:]...), 0))
	before := append([]byte{}, frame...)
	finishChecksum(virtio, frame)
	if got := binary.BigEndian.Uint16(frame[start+offset:]); got != want {
		t.Errorf("checksum %#x, want %#x", got, want)
	}
	binary.BigEndian.PutUint16(frame[start+offset:], pseudo)
	for i := range frame {
		if frame[i] != before[i] {
			t.Errorf("byte %d was changed too", i)
		}
	}
	for _, bad := range [][2]uint16{{60, 16}, {0xffff, 0}, {34, 0xffff}} {
		binary.NativeEndian.PutUint16(virtio[6:], bad[0])
		binary.NativeEndian.PutUint16(virtio[8:], bad[1])
		finishChecksum(virtio, frame) // beyond the frame: no panic, nothing written
	}
	virtio[0] = 0
	finishChecksum(virtio, frame)
	if string(frame) != string(before) {
		t.Error("a frame was changed whose checksum was done, or is not in it")
	}
}

func TestSYNsBeyondTheLimitAreNotCounted(t *testing.T) {
	var s synCount
	packet := func(flags header.TCPFlags, from, to uint16) *stack.PacketBuffer {
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{ReserveHeaderBytes: 20, Payload: buffer.MakeWithData([]byte{1})})
		pkt.EgressRoute.RemoteAddress = address(peerAddr)
		h := header.TCP(pkt.TransportHeader().Push(header.TCPMinimumSize))
		h.Encode(&header.TCPFields{SrcPort: from, DstPort: to, DataOffset: 20, Flags: flags})
		return pkt
	}
	key := func(local, remote uint16) handshake { return handshake{address(peerAddr), remote, local} }
	for range 3 {
		s.note(packet(header.TCPFlagSyn, 1, 2))
	}
	s.note(packet(header.TCPFlagAck, 1, 2))
	if n := s.timeouts(key(1, 2)); n != 2 {
		t.Errorf("3 SYNs are %d timeouts", n)
	}
	for i := range maxHandshakes {
		s.note(packet(header.TCPFlagSyn, uint16(i>>8)+10, uint16(i)))
	}
	if len(s.sent) != maxHandshakes {
		t.Errorf("%d handshakes are remembered, at most %d may be", len(s.sent), maxHandshakes)
	}
	s.note(packet(header.TCPFlagSyn, 5, 5))
	if n := s.timeouts(key(5, 5)); n != -1 {
		t.Errorf("a handshake beyond the limit has %d timeouts, want not known", n)
	}
	s.note(packet(header.TCPFlagSyn, 1, 2))
	if n := s.timeouts(key(1, 2)); n != 3 {
		t.Errorf("one that is remembered has %d timeouts, want 3", n)
	}
	s.forget(key(1, 2))
	if n := s.timeouts(key(1, 2)); n != -1 {
		t.Errorf("one that is closed has %d timeouts", n)
	}
}

// The queue is the kernel's, to the byte: there is room up to a limit, and again when it has drained.
func TestQueueGivesRoom(t *testing.T) {
	const rate = 1e6
	p := testnet.NewPath(t, testnet.PathOptions{NoIPv6: true, UplinkBps: rate, UplinkLimit: 1 << 20})
	var q *Queue
	if err := p.Uplink.In(func() (err error) { q, err = OpenQueue(p.Uplink.Ifindex, rate); return err }); err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if q.limit != leastQueued {
		t.Errorf("%d bytes may wait at 1 Mbit/s, want %d", q.limit, leastQueued)
	}
	raw := testnet.NewRaw(t, p.Uplink)
	frame := make([]byte, 1514)
	copy(frame, []byte{2, 0, 0, 0, 0, 99})
	sent := 0
	for q.admit(len(frame), false) {
		raw.Send(t, frame)
		if sent++; sent > 100 {
			t.Fatal("there is always room")
		}
	}
	// The bucket holds two frames, and 16 may wait; more leave while the loop runs.
	if sent < 16 {
		t.Errorf("no room after %d frames", sent)
	}
	backlog, err := q.backlog()
	if kernel := int(testnet.Queue(t, p.Uplink).BacklogBytes); err != nil || backlog > leastQueued || kernel > backlog || kernel == 0 {
		t.Errorf("the queue says %d bytes, the kernel then %d: %v", backlog, kernel, err)
	}
	if !q.admit(len(frame), true) {
		t.Error("who waits was sent away")
	}
	if after, err := q.backlog(); err != nil || after > backlog-leastQueued/8 {
		t.Errorf("who waited got room with %d of %d bytes in the queue: %v", after, leastQueued, err)
	}
	q.Close()
	if !q.admit(1<<20, false) || !q.admit(1<<20, true) {
		t.Error("a queue that is closed holds somebody back")
	}
}

func TestOpenQueueRefuses(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{NoIPv6: true})
	for _, ifindex := range []int{1, 12345} { // lo, which has no queue, and a device that does not exist
		err := p.Uplink.In(func() error {
			q, err := OpenQueue(ifindex, 1e6)
			if err == nil {
				q.Close()
			}
			return err
		})
		if err == nil {
			t.Errorf("device %d: no error", ifindex)
		}
	}
}

func TestParseBacklogSurvivesAnything(t *testing.T) {
	answer := make([]byte, 64)
	for i := range answer {
		answer[i] = byte(i)
	}
	for n := range answer {
		if _, err := parseBacklog(answer[:n]); err == nil {
			t.Errorf("%d bytes of nonsense have a backlog", n)
		}
	}
}
