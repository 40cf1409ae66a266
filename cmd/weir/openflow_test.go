package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"weir/openflow"
)

// askedSwitch is a switch of OpenFlow 1.3 that answers `weir openflow`, and sends a packet-in and a port status once
// asynchronous messages are enabled.
type askedSwitch struct {
	conn     net.Conn
	noMeters bool
	name     string // of its description, and of port 5
}

func (s *askedSwitch) say(xid uint32, m openflow.Message) error {
	b, err := openflow.Append(nil, xid, m)
	if err != nil {
		return err
	}
	_, err = s.conn.Write(b)
	return err
}

// serve answers until the peer closes.
func (s *askedSwitch) serve() error {
	if err := s.say(0, &openflow.Hello{Versions: []uint8{openflow.Version13}}); err != nil {
		return err
	}
	for {
		head := make([]byte, openflow.HeaderLen)
		if _, err := io.ReadFull(s.conn, head); err != nil {
			return err
		}
		h, err := openflow.ParseHeader(head)
		if err != nil {
			return err
		}
		whole := make([]byte, h.Length)
		copy(whole, head)
		if _, err := io.ReadFull(s.conn, whole[openflow.HeaderLen:]); err != nil {
			return err
		}
		_, m, err := openflow.Decode(whole)
		if err != nil {
			return err
		}
		if err := s.answer(h.XID, m); err != nil {
			return err
		}
	}
}

func (s *askedSwitch) answer(xid uint32, m openflow.Message) error {
	switch m := m.(type) {
	case *openflow.FeaturesRequest:
		return s.say(xid, &openflow.FeaturesReply{DatapathID: 0xabc, Tables: 3})
	case *openflow.EchoRequest:
		return s.say(xid, &openflow.EchoReply{Data: m.Data})
	case *openflow.RoleRequest:
		return s.say(xid, &openflow.RoleReply{Role: openflow.RoleEqual})
	case *openflow.SetAsync:
		in := &openflow.PacketIn{BufferID: openflow.NoBuffer, Match: openflow.Match{openflow.InPort(5)}, Data: []byte{1, 2, 3}}
		return errors.Join(s.say(0, in), s.say(0, &openflow.PortStatus{Reason: openflow.PortModify, Desc: openflow.Port{PortNo: 5, Name: "swp5"}}))
	case *openflow.MultipartRequest:
		return s.multipart(xid, m)
	}
	return nil
}

func (s *askedSwitch) multipart(xid uint32, ask *openflow.MultipartRequest) error {
	reply := &openflow.MultipartReply{Type: ask.Type}
	switch ask.Type {
	case openflow.MultipartDesc:
		reply.Body = &openflow.DescReply{Manufacturer: "M" + s.name, Hardware: "H" + s.name, Software: "S" + s.name, SerialNum: "1" + s.name, Datapath: "D" + s.name}
	case openflow.MultipartPortDesc:
		reply.Body = openflow.PortDescReply{{PortNo: openflow.PortLocal, Name: "br0", Config: openflow.PortDown}, {PortNo: 5, Name: "swp5" + s.name, CurrSpeed: 1_000_000}}
	case openflow.MultipartPortStats:
		reply.Body = openflow.PortStatsReply{{PortNo: 5, RxBytes: 1234, TxDropped: ^uint64(0)}}
	case openflow.MultipartTable:
		reply.Body = openflow.TableStatsReply{{TableID: 0, ActiveCount: 2, LookupCount: 10, MatchedCount: 9}, {TableID: 1}}
	case openflow.MultipartGroupDesc:
		reply.Body = openflow.GroupDescReply{}
	case openflow.MultipartMeterConfig:
		if s.noMeters {
			return s.say(xid, &openflow.ErrorMessage{ErrorType: openflow.ErrorBadRequest, Code: 2})
		}
		reply.Body = openflow.MeterConfigReply{}
	case openflow.MultipartFlow: // in two parts, and only the requested ones
		flows := openflow.FlowStatsReply{
			{TableID: 0, Priority: 7, Cookie: 0x57, Match: openflow.Match{openflow.EthType(0x800)}, Instructions: openflow.Instructions{openflow.InstructionGotoTable{TableID: 1}}},
			{TableID: 1, Priority: 0, PacketCount: 3},
		}
		for i, f := range flows {
			request := ask.Body.(openflow.FlowStatsRequest)
			body := openflow.FlowStatsReply{}
			if f.Cookie&request.CookieMask == request.Cookie&request.CookieMask {
				body = append(body, f)
			}
			if err := s.say(xid, &openflow.MultipartReply{Type: ask.Type, More: i == 0, Body: body}); err != nil {
				return err
			}
		}
		return nil
	}
	return s.say(xid, reply)
}

// listen returns the address of a listening switch. It ends with the test.
func (s *askedSwitch) listen(t *testing.T, network string) string {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "br0.mgmt")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.conn = conn
			_ = s.serve() // ends when weir closes
			conn.Close()
		}
	}()
	return l.Addr().String()
}

func openflowRun(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), append([]string{"openflow"}, args...), &out, &errs)
	return out.String(), errs.String(), code
}

func TestOpenflow_Dump(t *testing.T) {
	address := (&askedSwitch{noMeters: true}).listen(t, "tcp")
	out, errs, code := openflowRun(t, "dump", address)
	if code != 0 {
		t.Fatal(code, errs)
	}
	for _, want := range []string{
		"switch 0000000000000abc: 3 tables", "M, H, software S, serial number 1, D", "table 0: 2 flows, 9 of 10 packets matched",
		"cookie=0x57, n_packets=0, n_bytes=0, age=0s, priority=7, eth_type=0x800: goto_table:1", "table=1, cookie=0x0, n_packets=3",
		"no meters: request METER_CONFIG: ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "table 1:") {
		t.Error("an empty table is reported")
	}
	out, _, code = openflowRun(t, "dump", address, "--json")
	var d struct {
		Features struct {
			DatapathID uint64 `json:"datapath_id"`
		} `json:"features"`
		Flows   []json.RawMessage `json:"flows"`
		Missing map[string]string `json:"missing"`
	}
	if err := json.Unmarshal([]byte(out), &d); err != nil || code != 0 {
		t.Fatal(err, code, out)
	}
	if d.Features.DatapathID != 0xabc || len(d.Flows) != 2 || len(d.Missing) != 1 {
		t.Errorf("%+v", d)
	}
}

// A switch cannot send control characters to the terminal by its names.
func TestOpenflow_HostileNames(t *testing.T) {
	address := (&askedSwitch{name: "\x1b[2Jx\ny"}).listen(t, "tcp")
	for _, command := range []string{"dump", "ports"} {
		out, errs, code := openflowRun(t, command, address)
		if code != 0 || strings.Contains(out, "\x1b") || strings.Contains(out, "\ny") || !strings.Contains(out, `swp5\x1b[2Jx\ny`) {
			t.Errorf("%s: code %d %s\n%q", command, code, errs, out)
		}
	}
}

func TestOpenflow_FlowsAndPorts(t *testing.T) {
	address := "unix:" + (&askedSwitch{}).listen(t, "unix")
	out, errs, code := openflowRun(t, "flows", address, "--cookie", "0x50/0xf0")
	if code != 0 || strings.Count(out, "\n") != 1 || !strings.Contains(out, "cookie=0x57") {
		t.Errorf("code %d %s\n%s", code, errs, out)
	}
	out, errs, code = openflowRun(t, "ports", address)
	lines := strings.Split(out, "\n")
	if code != 0 || len(lines) != 4 {
		t.Fatalf("code %d %s\n%s", code, errs, out)
	}
	// A counter that the switch does not have is not printed as 0.
	for i, want := range [][]string{{"5", "swp5", "00:00:00:00:00:00", "up", "1000", "0", "1234", "0", "0", "0", "-"}, {"LOCAL", "br0", "00:00:00:00:00:00", "set", "down", "-", "-", "-", "-", "-", "-", "-"}} {
		if got := strings.Fields(lines[i+1]); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("port %q, want %q", got, want)
		}
	}
}

// comes connects a switch to the address at which `weir openflow` waits.
type comes struct {
	bytes.Buffer
	ended chan error
}

func (c *comes) Write(b []byte) (int, error) {
	if _, address, ok := strings.Cut(string(b), "waiting for a switch at "); ok {
		go func() {
			conn, err := net.Dial("tcp", strings.TrimSpace(address))
			if err == nil {
				err = (&askedSwitch{conn: conn}).serve()
			}
			c.ended <- err
		}()
	}
	return c.Buffer.Write(b)
}

// weir openflow waits for a switch that connects, and prints its asynchronous messages, one per line.
func TestOpenflow_WatchListens(t *testing.T) {
	var out bytes.Buffer
	errs := comes{ended: make(chan error, 1)}
	code := run(t.Context(), []string{"openflow", "watch", "listen:127.0.0.1:0", "--count", "2", "--json", "--within", "60s"}, &out, &errs)
	if code != 0 {
		t.Fatal(code, errs.String())
	}
	if err := <-errs.ended; err == nil {
		t.Error("the switch ended by itself")
	}
	var types []string
	for line := range strings.Lines(out.String()) {
		var l struct {
			Message struct {
				Type string `json:"type"`
			} `json:"message"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err, line)
		}
		types = append(types, l.Message.Type)
	}
	if strings.Join(types, " ") != "PACKET_IN PORT_STATUS" {
		t.Errorf("printed %q", types)
	}
}

func TestOpenflow_Refusals(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"ports", "nowhere"}, exitUsage, `switch "nowhere" is not HOST:PORT, unix:PATH or listen:[HOST]:PORT`},
		{[]string{"flows", "127.0.0.1:1", "--cookie", "x"}, exitUsage, "--cookie x"},
		{[]string{"dump", "127.0.0.1:1", "--ca", "ca.pem"}, exitUsage, "TLS needs --ca, --certificate and --key"},
		{[]string{"dump", "127.0.0.1:1", "--tls-name", "sw"}, exitUsage, "--tls-name needs TLS"},
		{[]string{"watch", "127.0.0.1:1", "--count", "-1"}, exitUsage, "must not be negative"},
		{[]string{"dump", "unix:/nonexistent/br0.mgmt"}, exitError, "check that it listens for OpenFlow 1.3 there"},
		{[]string{"ports", "listen:127.0.0.1:0", "--within", "10ms"}, exitError, "ovs-vsctl set-controller"},
	} {
		_, errs, code := openflowRun(t, c.args...)
		if code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("%q: code %d, %s", c.args, code, errs)
		}
	}
}
