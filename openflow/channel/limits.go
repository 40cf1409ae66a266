package channel

import (
	"cmp"
	"fmt"
	"time"

	"weir/openflow"
)

// Limits bounds the resources that peers can use in a controller. Zero stands for the default in brackets.
type Limits struct {
	Connections int // in all, half-open ones with them [4096]
	PerAddress  int // of Connections, from one remote address [64]
	HalfOpen    int // of Connections, before hello and features are finished [256]

	HandshakeTimeout time.Duration // for TLS, hello and features together [10 s]
	MessageTimeout   time.Duration // from a message's first byte to its last [5 s]
	WriteTimeout     time.Duration // for 64 KiB to be taken by the peer [5 s]
	EchoInterval     time.Duration // between two echo requests, and two questions for the role [2 s]
	EchoTimeout      time.Duration // for anything to arrive after an echo request [4 s]
	ProbeTimeout     time.Duration // for a switch to answer when another claims its datapath id [1 s]
	RequestTimeout   time.Duration // for an answer, its last part included [10 s]

	MessageBytes  int // longest message [65535]
	SocketBytes   int // kernel's buffer in each direction [256 KiB]
	QueueBytes    int // encoded and not yet in the kernel's buffer [4 MiB]
	QueueMessages int // the same in messages [16384]
	Outstanding   int // questions without an answer [1024]
	ReplyParts    int // parts of one answer [4096]
	ReplyBytes    int // parts gathered of all unfinished answers [32 MiB]

	PacketIns     int // per second; more are dropped; a quarter of it at once [100000]
	PacketInBytes int // per second; more are dropped; a quarter of it at once [64 MiB]
	Messages      int // per second of other unasked messages; more are read later; as many at once [20000]
	ReadBytes     int // per second of all; more are read later; a quarter of it at once [256 MiB]

	LogLines int // per second and connection; more are counted; ten times as many at once; 20 of all connections, 2000 at once [1]
}

// queueMin leaves room for the messages of a handshake; readMin is a full read buffer.
const (
	queueMin = 4096
	readMin  = 4 * bufferMax
)

// withDefaults replaces zeros by defaults, and returns an error for a limit out of range.
func (l Limits) withDefaults() (Limits, error) {
	numbers := []struct {
		name                  string
		at                    *int
		fallback, least, most int
	}{
		{"Connections", &l.Connections, 4096, 1, 1 << 20},
		{"PerAddress", &l.PerAddress, 64, 1, 1 << 20},
		{"HalfOpen", &l.HalfOpen, 256, 1, 1 << 20},
		{"MessageBytes", &l.MessageBytes, openflow.MaxLen, 256, openflow.MaxLen},
		{"SocketBytes", &l.SocketBytes, 256 << 10, queueMin, 1 << 30},
		{"QueueBytes", &l.QueueBytes, 4 << 20, queueMin, 1 << 30},
		{"QueueMessages", &l.QueueMessages, 16384, 16, 1 << 30},
		{"Outstanding", &l.Outstanding, 1024, 1, 1 << 20},
		{"ReplyParts", &l.ReplyParts, 4096, 1, 1 << 20},
		{"ReplyBytes", &l.ReplyBytes, 32 << 20, queueMin, 1 << 30},
		{"PacketIns", &l.PacketIns, 100_000, 4, 1 << 30},
		{"PacketInBytes", &l.PacketInBytes, 64 << 20, readMin, 1 << 30},
		{"Messages", &l.Messages, 20_000, 1, 1 << 30},
		{"ReadBytes", &l.ReadBytes, 256 << 20, readMin, 1 << 30},
		{"LogLines", &l.LogLines, 1, 1, 1 << 20},
	}
	for _, n := range numbers {
		if *n.at = cmp.Or(*n.at, n.fallback); *n.at < n.least || *n.at > n.most {
			return l, fmt.Errorf("limit %s of an OpenFlow connection is %d: choose %d to %d", n.name, *n.at, n.least, n.most)
		}
	}
	times := []struct {
		name     string
		at       *time.Duration
		fallback time.Duration
	}{
		{"HandshakeTimeout", &l.HandshakeTimeout, 10 * time.Second},
		{"MessageTimeout", &l.MessageTimeout, 5 * time.Second},
		{"WriteTimeout", &l.WriteTimeout, 5 * time.Second},
		{"EchoInterval", &l.EchoInterval, 2 * time.Second},
		{"EchoTimeout", &l.EchoTimeout, 4 * time.Second},
		{"ProbeTimeout", &l.ProbeTimeout, time.Second},
		{"RequestTimeout", &l.RequestTimeout, 10 * time.Second},
	}
	for _, t := range times {
		if *t.at = cmp.Or(*t.at, t.fallback); *t.at < time.Millisecond {
			return l, fmt.Errorf("limit %s of an OpenFlow connection is %v: choose at least a millisecond", t.name, *t.at)
		}
	}
	return l, nil
}
