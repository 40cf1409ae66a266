package bus

import (
	"strings"
	"testing"

	"weir/internal/testlog"
)

// Peers without a certificate cause lines of NATS: those above the rate are left out and counted.
func TestNATSLog_IsLimited(t *testing.T) {
	var log testlog.Log
	l := newNATSLog(logger(&log))
	l.limit.SetLimit(0) // the burst only
	for range 1000 {
		l.Errorf("TLS handshake error: %v", "EOF")
	}
	if n := strings.Count(log.String(), "\n"); n != 200 {
		t.Errorf("%d lines, want 200", n)
	}
	l.limit.SetBurst(1)
	l.limit.SetLimit(1e9)
	for !log.Has("lines_left_out=") { // the bucket fills in a nanosecond
		l.Warnf("one more")
	}
	if !log.Has("one more", "lines_left_out=8") {
		t.Errorf("the number of lines that are left out is wrong:\n%s", log.String())
	}
}
