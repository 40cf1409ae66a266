package lab

import (
	"strings"
	"testing"

	"weir/experiment"
)

// The lab cannot delay or lose a controller's messages, and says so before it builds anything.
func TestCheck_RefusesAControlPlane(t *testing.T) {
	r := &experiment.Run{Scheme: "s", Config: experiment.Config{Control: &experiment.Control{Loss: 0.1}}}
	if err := (Laws{}).Check(r); err == nil || !strings.Contains(err.Error(), "scheme s: network.control_delay, control_jitter and control_loss are the simulator's") {
		t.Errorf("%v", err)
	}
	r.Config.Control = nil
	if err := (Laws{}).Check(r); err != nil {
		t.Errorf("without these keys: %v", err)
	}
}
