package agentd_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"

	"weir/agent/agentd"
	"weir/agent/switchd"
	"weir/datapath/testnet"
)

// An agent whose laws have lossrepair: eight cubic connections send their first windows at once, which is more than the buffer of the uplink
// has room for, and less than buffer and parking have. All segments without room come back, and the queue drops none. At its end the agent
// leaves nothing.
func TestLossRepairInTheAgent(t *testing.T) {
	const flows, size, buffer = 8, 12_000, 60_000 // bytes; 12,000 are less than a first window
	m := newMachine(t, 1, testnet.PathOptions{UplinkBps: 10e6, UplinkLimit: buffer})
	laws := filepath.Join(m.dir, "switch.yaml")
	err := os.WriteFile(laws, []byte("kind: Switch\nversion: 2\nports: [{match: up0, lossrepair: {park: 150KB}}]\nmetrics: {listen: \"\"}\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	a := m.start(m.switchFile("  file: " + laws + "\n"))
	m.until("the law and telemetry are attached", func(s *agentd.Status) bool {
		return testnet.AttachedTo(t, m.Uplink) == 2 && s.Switch.Laws.Off == ""
	})
	before := testnet.Queue(t, m.Uplink)
	var got switchd.Repairs
	testnet.Until(t, "packets were repaired", func() bool {
		m.atOnce(flows, size)
		got = m.repairs()
		return got.Repaired > 0
	})
	if drops := testnet.Queue(t, m.Uplink).Since(before).Drops; drops != 0 || got.Repaired != got.Over || got.Full+got.Refused != 0 {
		t.Errorf("%d drops, %+v", drops, got)
	}
	t.Logf("%+v", got)
	a.end()
	if n := testnet.AttachedTo(t, m.Uplink); n != 0 {
		t.Errorf("%d programs are left", n)
	}
	m.Host.Must(t, func() error {
		if _, err := netlink.LinkByName("weir-repair0"); !errors.As(err, new(netlink.LinkNotFoundError)) {
			return errors.Join(errors.New("the parking is left"), err)
		}
		return nil
	})
}

// atOnce sends this many bytes over each of some new connections at once, and waits until they are acknowledged.
func (m *machine) atOnce(connections, bytes int) {
	m.t.Helper()
	l := m.Path(0).Listen(m.t, testnet.PeerIPv4(0))
	defer l.Close()
	var all []*testnet.Pair
	for range connections {
		all = append(all, m.Path(0).Dial(m.t, l))
	}
	for _, c := range all {
		if _, err := c.Client.Write(make([]byte, bytes)); err != nil {
			m.t.Fatal(err)
		}
	}
	for _, c := range all {
		if _, err := io.ReadFull(c.Server, make([]byte, bytes)); err != nil {
			m.t.Fatal(err)
		}
		c.Close()
	}
	testnet.Quiet(m.t, m.Uplink)
}

// repairs returns the counts of the uplink.
func (m *machine) repairs() (got switchd.Repairs) {
	m.t.Helper()
	m.Host.Must(m.t, func() error {
		r, err := switchLaws().Status("default")
		if err == nil && len(r.Switches) == 1 && len(r.Switches[0].Ports) == 1 && r.Switches[0].Ports[0].Repairs != nil {
			got = *r.Switches[0].Ports[0].Repairs
		}
		return err
	})
	return got
}
