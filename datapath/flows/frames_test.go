package flows_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"weir/datapath/flows"
	"weir/datapath/internal/frames"
	"weir/datapath/testnet"
)

const (
	ack    = frames.ACK
	fin    = frames.ACK | frames.FIN
	rst    = frames.RST
	syn    = frames.SYN
	synAck = frames.SYN | frames.ACK
)

// Packet by packet: what a reading says afterwards. No frame is changed.
func TestFrames(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 100e6, Limit: 60_000, NoIPv6: true})
	f := attached(t, flows.Port{PortRef: p.Port, N: 7})
	now := time.Second
	for _, from := range []string{"10.9.0.1", "fd00::9"} {
		to := map[string]string{"10.9.0.1": "10.9.0.2", "fd00::9": "fd00::a"}[from]
		for i, step := range []struct {
			flags   byte
			seq     uint32
			payload int
			wait    time.Duration
			want    string
		}{
			{syn, 99, 0, 0, ""},
			{ack, 100, 0, 0, ""}, // no data
			{ack, 100, 10, 0, "began 10"},
			{ack, 110, 20, 0, "30"},
			{ack, 100, 10, 0, ""},   // sent again
			{ack, 120, 30, 0, "50"}, // ten of them again
			{ack, 200, 10, 0, "110"},
			{ack, 150, 50, 0, ""},        // the gap
			{ack, 210 + 1<<31, 5, 0, ""}, // far away
			{fin, 210, 0, 0, "ended"},
			{ack, 200, 10, 0, ""}, // sent again behind its end
			{syn, 5000, 0, 0, "began"},
			{ack, 5001, 7, 0, "7"},
			{synAck, 1<<32 - 4, 0, 0, "ended began"}, // the end left by another port
			{ack, 1<<32 - 3, 9, 0, "9"},              // the numbers wrap
			{rst, 6, 0, 0, "ended"},
			{ack, 1<<32 - 3, 9, 2 * time.Second, ""}, // and forgotten
			{ack, 1<<32 - 3, 9, 0, "began 9"},
		} {
			s := frames.Segment{FromPort: 4000, ToPort: 80, Flags: step.flags, Seq: step.seq, Payload: make([]byte, step.payload)}
			s.From, s.To = netip.MustParseAddr(from), netip.MustParseAddr(to)
			in := s.Append(nil)
			verdict, out, err := f.Run(in)
			if err != nil || int32(verdict) != -1 || !bytes.Equal(in, out) {
				t.Fatalf("%s, packet %d: verdict %d, %v", from, i, int32(verdict), err)
			}
			now += step.wait
			changes, err := f.Read(now, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, c := range changes {
				if c.Flow.Src.String() != netip.AddrPortFrom(s.From, 4000).String() || c.Flow.Dst != netip.AddrPortFrom(s.To, 80) || c.Port != 7 {
					continue // another flow of this machine
				}
				for _, word := range []struct {
					is   bool
					word string
				}{{c.Began, "began"}, {c.Sent > 0, fmt.Sprint(c.Sent)}, {c.Ended, "ended"}} {
					if word.is {
						got += " " + word.word
					}
				}
			}
			if want := step.want; got != "" && got[1:] != want || got == "" && want != "" {
				t.Errorf("%s, packet %d (flags %#x, number %d, %d B): %q, want %q", from, i, step.flags, step.seq, step.payload, got, want)
			}
		}
	}
}

// A guest that sends each segment from another port makes flows without end. The readings remember no more than the table has, and a flow
// that goes on is reported.
func TestFrames_FloodOfFlows(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 100e6, Limit: 60_000, NoIPv6: true})
	f := attached(t, flows.Port{PortRef: p.Port, N: 7})
	s := frames.Segment{FromPort: 4000, ToPort: 80, Flags: ack, Payload: make([]byte, 10)}
	s.From, s.To = netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")
	send := func(from uint16, seq uint32) {
		s.FromPort, s.Seq = from, seq
		if _, _, err := f.Run(s.Append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	var sent uint64
	for reading := range 40 {
		for i := range 1000 {
			send(uint16(5000+reading*1000+i), 1)
		}
		send(4000, uint32(10*reading+1))
		changes, err := f.Read(time.Duration(reading+1)*time.Millisecond, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			if c.Flow.Src.Port() == 4000 && c.Flow.Src.Addr() == s.From {
				sent = c.Sent
			}
		}
		if n, table := f.Known(); n > table {
			t.Fatalf("reading %d: %d flows are remembered, the table has %d", reading, n, table)
		}
	}
	if sent == 0 {
		t.Error("the flow that goes on was never reported")
	}
}
