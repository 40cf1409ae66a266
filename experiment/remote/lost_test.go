package remote

import (
	"testing"
	"time"

	"weir/experiment"
)

// Tasks that wait because all workers are busy are not lost: sent again, each would run twice. A worker runs one lab run at a time,
// whatever its other slots.
func TestClient_SendsLostTasksOnly(t *testing.T) {
	for _, tc := range []struct {
		name    string
		world   string
		running int // of 4 slots
		want    int
	}{
		{"the lab is taken", experiment.WorldLab, 1, 0},
		{"the lab is free", experiment.WorldLab, 0, 1},
		{"all processors are taken", experiment.WorldSim, 4, 0},
		{"a processor is free", experiment.WorldSim, 3, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := time.Now()
			state := &State{Codes: map[string]string{tc.world: codeOfTests}, Slots: 4, Running: make([]Running, tc.running)}
			w := &waiting{run: &experiment.Run{World: tc.world}, seen: now.Add(-2 * lostAfter)}
			c := &Client{
				codes: map[string]string{tc.world: codeOfTests}, pending: map[string]*waiting{"k": w}, idle: map[string]time.Time{},
				workers: map[string]*known{"w": {name: "w", state: state, seen: now.Add(time.Hour)}},
			}
			if again, _ := c.lost(now); len(again) != 0 {
				t.Error("sent again while a worker may still take it")
			}
			again, _ := c.lost(now.Add(ackWait + time.Second))
			if len(again) != tc.want {
				t.Errorf("%d tasks are sent again, want %d", len(again), tc.want)
			}
		})
	}
}
