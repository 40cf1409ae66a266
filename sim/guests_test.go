package sim

import (
	"testing"

	"weir/sim/event"
)

// Linux delays an ACK for 40 ms, but for at least a jiffy (4 ms) less than the least RTO, and for at least a jiffy
// (tcp_delack_max). newreno and sack follow their RFCs.
func TestDelayedACKIsShorterThanTheRTO(t *testing.T) {
	const ms = event.Millisecond
	for _, test := range []struct {
		cc, least, delayed string
		want               event.Time
	}{
		{"cubic", "200ms", "true", 40 * ms},
		{"cubic", "44ms", "true", 40 * ms},
		{"cubic", "41ms", "true", 40 * ms}, // 11 jiffies
		{"reno", "40ms", "true", 36 * ms},
		{"dctcp", "10ms", "true", 8 * ms},
		{"reno", "1ms", "true", 4 * ms},
		{"reno", "10ms", "false", 0},
		{"sack", "10ms", "true", 40 * ms},
	} {
		r := planned(t, baseWith(`{name: flows, from: "sender*", to: receiver1, pattern: bulk}`),
			"guests.cc="+test.cc, "guests.rto_min="+test.least, "guests.delayed_ack="+test.delayed)[0]
		c, err := tcpConfig(&r.Config.Profiles[0])
		if err != nil {
			t.Fatal(err)
		}
		if c.DelayedACK != test.want {
			t.Errorf("%+v: %d", test, c.DelayedACK)
		}
	}
}
