package switchd

import (
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"weir/datapath/testnet"
	"weir/internal/localsock"
)

// lines is a log, line by line.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// A client that goes away before the answer is no fault of the switch; an unknown request is logged as a warning.
func TestControl_LogsUnknownRequests(t *testing.T) {
	n := testnet.NewNamespace(t)
	log := make(lines, 10)
	var c *control
	n.Must(t, func() error {
		c = newControl("test", slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		return nil
	})
	t.Cleanup(c.close)
	for _, row := range []struct{ asks, says string }{
		{"", "level=DEBUG"},
		{askReload, "level=DEBUG"},
		{"purge", "level=WARN"},
	} {
		var one *net.UnixConn
		n.Must(t, func() (err error) {
			one, err = localsock.Dial(localsock.Switch, c.name)
			return err
		})
		if _, err := one.Write([]byte(row.asks)); err != nil {
			t.Fatal(err)
		}
		if err := one.Close(); err != nil {
			t.Fatal(err)
		}
		if row.asks == askReload {
			answer := <-c.asked
			answer <- Answer{}
		}
		select {
		case line := <-log:
			if !strings.Contains(line, row.says) {
				t.Errorf("%q: %s, not %s", row.asks, line, row.says)
			}
		case <-time.After(testnet.Patience):
			t.Fatalf("%q: nothing is logged", row.asks)
		}
	}
}
