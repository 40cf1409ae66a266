package bus

import (
	"fmt"
	"sync/atomic"
	"testing"

	"weir/bus/weirv1"
)

// Events of an agent are at the controller before a report that the agent sent after them, however long they take to decode: the report decides
// about the arrivals of its interval.
func TestControl_EventsBeforeTheReportThatFollows(t *testing.T) {
	k := newKit(t)
	url := k.server(nil).URL()
	var events atomic.Uint64
	wake := make(chan struct{}, 1)
	c, err := NewControl(ControlConfig{
		Client: k.client(k.enrol("controller/c1"), url), Events: func(string, *weirv1.Events) { events.Add(1) }, Heartbeat: func(*weirv1.Heartbeat) {}, Wake: wake,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	until(t, "the controller's connection", c.Conn().Connected)
	flush(t, c.Conn())
	a, _ := k.agent(k.enrol("agent/h1"), url)
	e := &weirv1.Events{Switch: 3, Inventory: &weirv1.Inventory{Serial: 1, Parts: 1}}
	for i := range 500 {
		e.Inventory.Ports = append(e.Inventory.Ports, &weirv1.SwitchPort{Port: uint32(i + 1), Name: fmt.Sprint("swp", i), Rate: 1e9, BufferBytes: 1e6})
	}
	for n := range uint64(100) {
		if err := a.SendEvents(e); err != nil {
			t.Fatal(err)
		}
		if err := a.SendTelemetry(telemetryOf(n + 1)); err != nil {
			t.Fatal(err)
		}
		<-wake
		if _, m, ok := c.Inbox().Next(); !ok || m.GetPorts()[0].GetBacklogBytes() != n+1 || events.Load() != n+1 {
			t.Fatalf("report %d (%t, %v) came after %d events", n+1, ok, m, events.Load())
		}
	}
}
