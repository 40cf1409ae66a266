package agentd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"weir/agent/agentd"
	"weir/datapath/attach"
	"weir/datapath/testnet"
	"weir/deadline"
)

// declareVariable has the source of a flow: the test binary then declares it as a program of a VM would, and prints the ID.
const declareVariable = "WEIR_TEST_DECLARE"

func declare(source string) error {
	from, err := netip.ParseAddrPort(source)
	if err != nil {
		return err
	}
	c := deadline.New("")
	defer c.Close()
	id, err := c.Declare(context.Background(), deadline.Declaration{Source: from, Destination: netip.MustParseAddrPort("10.0.255.1:80"), Within: time.Minute, Bytes: 1000})
	if err == nil {
		fmt.Println(id)
	}
	return err
}

// program runs a program in a guest. It returns what it printed.
func (m *machine) program(guest int, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	p := testnet.Start(m.t, m.Guests[guest], cmd)
	<-p.Done
	if !cmd.ProcessState.Success() {
		return p.Log.String(), errors.New(cmd.ProcessState.String())
	}
	return strings.TrimSpace(p.Log.String()), nil
}

// Programs in VMs declare at the metadata address, with the Go package and with the Python client, and the port says for which VM. A VM
// cannot declare for another one, although it says so. When the agent is killed, the traffic of the VM goes on and no program is left
// at its port. A connection of before ends: by a reset when its VM sends to the next process, and at once when another process takes over.
func TestMetadata_Declare(t *testing.T) {
	m := newMachine(t, 2, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	dir, err := os.MkdirTemp("", "dl") // short, because a socket's path is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := m.hostFile("", 0, 1) + fmt.Sprintf("  deadlines: {sockets: %q, metadata: [169.254.169.253, \"fe80::a9fe:a9fd\"]}\n", dir+"/d")
	a := m.start(file)
	m.until("both VMs can declare", func(s *agentd.Status) bool { return s.Host.Deadlines.Metadata.VMs == 2 })
	for _, guest := range m.Guests {
		routeToMetadata(t, guest)
	}
	source := func(guest int) []string {
		return []string{declareVariable + "=" + netip.AddrPortFrom(addr(testnet.GuestIPv4(guest)), 4000).String()}
	}
	if out, err := m.program(0, source(0), os.Args[0]); err != nil {
		t.Errorf("VM 1: %v: %s", err, out)
	}
	if out, err := m.program(1, source(0), os.Args[0]); err == nil || !strings.Contains(out, "is no address of this VM") {
		t.Errorf("VM 2 declares for VM 1: %v: %s", err, out)
	}
	const python = `
import weir_deadline
client = weir_deadline.Client()
client.declare_flow(("10.0.0.2", 4000), ("10.0.255.1", 80), within=60, size=1000)
print(len(client.list()["deadlines"]))
`
	path := []string{"PYTHONPATH=../../deadline/python", "PYTHONDONTWRITEBYTECODE=1"}
	for _, where := range []string{"", "http://[fe80::a9fe:a9fd%eth0]:80"} {
		if out, err := m.program(1, append(path, deadline.SocketVariable+"="+where), "python3", "-c", python); err != nil || out != "1" {
			t.Errorf("Python at %q: %v: %s", where, err, out)
		}
	}
	s := m.status()
	if d := s.Host.Deadlines; d.Live != 2 || d.Refused["source"] != 1 || d.Metadata.Taken == 0 || d.Metadata.Dropped != 0 {
		t.Errorf("%+v %+v", d, d.Metadata)
	}
	streams := m.Path(0).NewStreams(t, testnet.PeerIPv4(0), 1)
	kept := m.connected(0)
	a.kill()
	streams.Progress(t, 1e6)
	m.Host.Must(t, func() error {
		programs, err := attach.ProgramsAt(m.Ports[0].Ifindex, ebpf.AttachTCXIngress)
		if len(programs) != 0 {
			t.Errorf("%d programs are left", len(programs))
		}
		return err
	})
	// The next process answers again.
	a = m.start(file)
	again := func(what string) {
		m.until(what, func(s *agentd.Status) bool { return s.Host.Deadlines.Metadata.VMs == 2 })
		if out, err := m.program(0, source(0), os.Args[0]); err != nil {
			t.Errorf("VM 1: %s: %v: %s", what, err, out)
		}
	}
	again("both VMs can declare after a restart")
	if _, err := io.WriteString(kept, askHTTP); err != nil {
		t.Error(err)
	}
	if err := ended(kept); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("a connection of before the restart: %v, want a reset", err)
	}
	kept = m.connected(0)
	m.start(file, overVariable+"=1")
	if err := <-a.done; err != nil {
		t.Error(err)
	}
	a.done <- nil
	if err := ended(kept); !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("a connection of before the takeover: %v, want its end", err)
	}
	again("both VMs can declare after a takeover")
}

const askHTTP = "GET /v1/deadlines HTTP/1.1\r\nHost: weir\r\n\r\n"

// connected returns a connection of a guest to the metadata address, on which it has an answer. It stays open for more.
func (m *machine) connected(guest int) (c net.Conn) {
	m.t.Helper()
	m.Guests[guest].Must(m.t, func() (err error) {
		c, err = net.DialTimeout("tcp4", "169.254.169.253:80", testnet.Patience)
		return err
	})
	m.t.Cleanup(func() { _ = c.Close() })
	got := make([]byte, 4096)
	_, err := io.WriteString(c, askHTTP)
	if err == nil {
		err = c.SetReadDeadline(time.Now().Add(testnet.Patience))
	}
	n := 0
	if err == nil {
		n, err = c.Read(got)
	}
	if err != nil || !strings.HasPrefix(string(got[:n]), "HTTP/1.1 200") {
		m.t.Fatalf("%q, %v", got[:n], err)
	}
	return c
}

// ended waits for the end of a connection, and returns its error; it drops what came before.
func ended(c net.Conn) error {
	err := c.SetReadDeadline(time.Now().Add(testnet.Patience))
	for b := make([]byte, 4096); err == nil; {
		_, err = c.Read(b)
	}
	return err
}

// routeToMetadata gives a guest a way to the address, as a default route would.
func routeToMetadata(t *testing.T, ns *testnet.Namespace) {
	t.Helper()
	cmd := exec.Command("ip", "route", "add", "169.254.169.253", "dev", "eth0")
	ns.Must(t, func() error {
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}
