package counts

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// A thousand refusals of one kind are ten lines, and another kind has its own.
func TestCounts_AFloodDoesNotFillTheLog(t *testing.T) {
	var c Counts
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	if all := c.All(); all == nil || len(all) != 0 {
		t.Errorf("before: %v", all)
	}
	for range 1000 {
		c.Refuse(log, "a certificate is refused", "expired", "error", errors.New("of yesterday"))
	}
	c.Refuse(log, "a certificate is refused", "revoked")
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 11 {
		t.Errorf("%d lines, want 11", len(lines))
	}
	for at, want := range map[int]string{9: `error="of yesterday" reason=expired times=512`, 10: "reason=revoked times=1"} {
		if at < len(lines) && !strings.Contains(lines[at], want) {
			t.Errorf("line %d: %s, want %s", at, lines[at], want)
		}
	}
	all := c.All()
	if all["expired"] != 1000 || all["revoked"] != 1 {
		t.Errorf("counts: %v", all)
	}
	all["expired"] = 0
	if c.All()["expired"] != 1000 {
		t.Error("the caller changes the counts")
	}
}
