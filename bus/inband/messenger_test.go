package inband

import (
	"log/slog"
	"os"
	"testing"

	"weir/law"
	"weir/law/telemetry"
)

// Messages of the form IPID have whole packets, at most 65535. No mark is lost, also if a message cannot be sent or the inventory comes again.
func TestCarryMarks(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	m := &Messenger{log: slog.New(slog.DiscardHandler), form: IPID, key: testKey, sender: &Sender{fd: int(w.Fd())}, to: map[string]*target{}, counts: map[string]uint64{}}
	to := Target{Address: host[:], Form: IPID, VMs: map[law.VM][4]byte{1: {10, 0, 0, 1}}}
	m.Set("h7", to)
	got := uint64(0)
	receiver := NewReceiver(IPID, host, testKey.Of("h7"))
	carry := func(marks uint64) (sent, message bool) {
		t.Helper()
		sent, err := m.CarryMarks("h7", 1, marks, func() ([]byte, error) { message = true; return []byte{1}, nil })
		if err != nil {
			t.Fatal(err)
		}
		if sent && message {
			var b [2048]byte
			n, err := r.Read(b[:])
			if err != nil {
				t.Fatal(err)
			}
			f, why := receiver.Take(b[:n])
			if why != Taken || f.VM != to.VMs[1] {
				t.Fatalf("%+v, %q", f, why)
			}
			got += uint64(f.Marks)
		}
		return sent, message
	}
	const third = telemetry.OneMark/3 + 1
	for i := range 3 {
		if sent, message := carry(third); !sent || message != (i == 2) {
			t.Errorf("third %d: sent %v, a message %v", i, sent, message)
		}
		m.Set("h7", to)
	}
	carry(100_000 * telemetry.OneMark)
	carry(telemetry.OneMark)
	if got != 100_002 {
		t.Errorf("%d marks came, want 100002", got)
	}
	if sent, _ := m.CarryMarks("h7", 2, 1, nil); sent {
		t.Error("sent to a VM without an address")
	}
	m.Set("h7", Target{Address: host[:], Form: IP})
	if form := m.Carries("h7"); form != "" {
		t.Errorf("an agent with another form takes %q", form)
	}
	m.Set("h7", to)
	m.Close()
	if sent, _ := carry(telemetry.OneMark); sent {
		t.Error("sent with a closed socket")
	}
}
