package bus

import (
	"time"

	"weir/bus/weirv1"
)

// Limits of one server of the bus.
const (
	MaxConnections   = 4096
	MaxSubscriptions = 64       // of one connection
	MaxPerIdentity   = 64       // connections of one identity at a time
	MaxPending       = 16 << 20 // bytes that wait for one connection; more disconnect it
	MaxControlLine   = 1024     // bytes of a protocol line
	// MaxMessages and MaxBytes limit what one agent or worker sends in a second. One that sends more for two periods of policeEvery in
	// a row is disconnected and refused for BanTime. A report each millisecond and as many events are allowed.
	MaxMessages = 4000
	MaxBytes    = 32 << 20
	BanTime     = 10 * time.Second
	// MaxTasks and MaxResults limit the bytes of work on disk: what waits for workers, and results that nobody has read yet.
	MaxTasks   = 32 << 20
	MaxResults = 256 << 20
	// MaxMessage limits the bytes of a message.
	MaxMessage = maxMessage

	handshakeTimeout = 2 * time.Second
	pingEvery        = 10 * time.Second
	maxPings         = 2
	policeEvery      = 500 * time.Millisecond
	maxStore         = 256 << 20 // bytes on disk, of leases and policy
	maxWork          = MaxTasks + MaxResults
	maxMessage       = weirv1.MaxMessage
)
