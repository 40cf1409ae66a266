package bus

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// Close waits for a function that runs for a message, and no other one runs afterwards. An agent's writes its terms: its caller may
// remove their directory after Close.
func TestConn_CloseWaitsForAFunctionThatRuns(t *testing.T) {
	k := newKit(t)
	url := k.server(nil).URL()
	c1 := k.dial(k.enrol("controller/c1"), url)
	sw1, err := Dial(k.client(k.enrol("agent/sw1"), url))
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the connection of sw1", sw1.Connected)
	began, end := make(chan struct{}, 10), make(chan struct{})
	if err := sw1.listen(commandPrefix+"sw1", 10, func(*nats.Msg) { began <- struct{}{}; <-end }); err != nil {
		t.Fatal(err)
	}
	flush(t, sw1)
	for range 2 {
		if err := c1.nc.Publish(commandPrefix+"sw1", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, c1)
	<-began
	closed := make(chan struct{})
	go func() { sw1.Close(); close(closed) }()
	until(t, "end of the connection", sw1.nc.IsClosed)
	select {
	case <-closed:
		t.Error("Close ended before the function")
	case <-time.After(50 * time.Millisecond):
	}
	close(end)
	<-closed
	if len(began) > 0 {
		t.Error("a function ran after Close")
	}
}
