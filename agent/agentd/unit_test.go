package agentd

import (
	"os"
	"strings"
	"testing"
)

// Packet sockets work under systemd with the drop-in file, which the pages about frames and metadata and the package name.
func TestUnit_PacketSockets(t *testing.T) {
	const name = "weir-agent-frames.conf"
	for file, want := range map[string][]string{
		"deploy/systemd/" + name: {"CAP_NET_RAW", "AF_PACKET"},
		"docs/agent.md":          {name},
		"docs/sed.md":            {name},
		"deploy/deb/build":       {name},
	} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Error(err)
		}
		for _, w := range want {
			if !strings.Contains(string(text), w) {
				t.Errorf("%s does not have %s", file, w)
			}
		}
	}
}
