package main

import (
	"strings"
	"testing"
	"time"

	"weir/agent/agentd"
	"weir/datapath/host"
	"weir/law"
)

// The text of a status has all that works and all that does not, in columns.
func TestPrintAgent(t *testing.T) {
	s := &agentd.Status{
		Name: "h7", Version: "v1", PID: 42, UpSeconds: 61,
		Bus: agentd.BusStatus{Connected: true, URLs: []string{"tls://10.0.0.5:4222"}, Bucket: 3, Term: 9, Controller: "c1", Commands: map[string]uint64{"obeyed": 7, "late": 1}},
		Host: &agentd.HostStatus{
			Number: 7, Uplink: "eth0", Set: 5, Capped: 2, Live: 3, Refused: map[string]uint64{"vm": 4, "off": 0},
			VMs: []agentd.VMStatus{
				{VM: 1, Name: "web1", Port: "vnet0", Live: 3, Counts: &host.Stats{Sent: 100, Control: 1, SpoofedIP: 2}, Grants: []agentd.LiveGrant{
					{Kind: "window", Peer: "10.0.0.2", Value: 2920, LeftMs: 640}, {Kind: "rate", Value: 20e6, LeftMs: 900},
				}},
				{VM: 2, Port: "vnet1", Off: "there is no device vnet1: waiting for it"},
				{VM: 3, Port: "vnet2", Counts: &host.Stats{Sent: 5}},
			},
		},
		Switch: &agentd.SwitchStatus{
			Number: 3, Interval: law.Duration(5 * time.Millisecond), Counts: agentd.ReadingCounts{Readings: 10, Late: 1, Sent: 9, Arrivals: 2},
			Ports: []agentd.PortStatus{{Port: "swp1", Number: 1, Rate: 10e9, Buffer: 1e6}, {Port: "swp2", Number: 2, Off: "there is no such device: waiting for it"}},
			Laws:  &agentd.LawsStatus{File: "/etc/weir/switch.yaml", Switch: "default"},
		},
	}
	want := `agent      h7, weir v1, process 42, up 1m1s
bus        tls://10.0.0.5:4222: connected
obeys      c1, term 9 (bucket 3)
commands   late 1, obeyed 7
host       7, uplink eth0, enforcing
grants     live 3, set 5, capped 2; refused: vm 4
switch     3, every 5ms, reporting
telemetry  readings 10, late 1, failed 0; messages 9, arrivals 2, lost 0
laws       /etc/weir/switch.yaml, running: weir status --name default

VM  NAME  PORT   SENT  DROPPED  GRANT   FOR       VALUE   LEFT
1   web1  vnet0  100   3        window  10.0.0.2  2920 B  640ms
                                rate    all       20Mbit  900ms
                                and 1 more
2   -     vnet1  -     -        there is no device vnet1: waiting for it
3   -     vnet2  5     0        -

PORT  NUMBER  RATE    BUFFER  STATE
swp1  1       10Gbit  1MB     reporting
swp2  2       -       -       there is no such device: waiting for it
`
	var b strings.Builder
	if err := printAgent(&b, s); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(b.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	if got := strings.Join(lines, "\n") + "\n"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if w := s.Well(); len(w) != 2 {
		t.Errorf("%q", w)
	}
}
