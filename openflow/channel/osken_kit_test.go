package channel

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/openflow"
	"weir/openflow/oftest"
)

// oskenPatience is for what a test waits for, on a machine that does other things too.
const oskenPatience = 5 * time.Minute

// oskenPeer is a process with os-ken in it, as a switch or as a controller: openflow/testdata.
type oskenPeer struct {
	t     *testing.T
	stdin io.Writer
	lines chan oskenLine
}

// oskenLine is what it says.
type oskenLine struct {
	Event  string          `json:"event"` // listens, up, got, sent, wrote or gone
	Port   int             `json:"port"`
	Type   openflow.Type   `json:"type"`
	XID    uint32          `json:"xid"`
	Hex    string          `json:"hex"`
	Fields json.RawMessage `json:"fields"` // null: os-ken cannot read it
}

// startOsken runs a program of testdata until the test's end. files, if any, are for TLS.
func startOsken(t *testing.T, program, way, port string, files *Certificates) *oskenPeer {
	t.Helper()
	args := []string{"../testdata/" + program, way}
	if port != "" {
		args = append(args, port)
	}
	if files != nil {
		args = append(args, files.CA, files.Certificate, files.Key)
	}
	cmd := exec.Command(oftest.OskenPython(t), args...)
	cmd.Env = append(cmd.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &oskenPeer{t: t, stdin: stdin, lines: make(chan oskenLine, 1000)}
	go p.read(stdout)
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	return p
}

func (p *oskenPeer) read(stdout io.Reader) {
	defer close(p.lines)
	in := bufio.NewScanner(stdout)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var l oskenLine
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			p.t.Errorf("os-ken says %s: %v", in.Bytes(), err)
			return
		}
		p.lines <- l
	}
}

// next waits for the next line, which must be that event.
func (p *oskenPeer) next(event string) oskenLine {
	p.t.Helper()
	select {
	case l, ok := <-p.lines:
		if !ok || l.Event != event {
			p.t.Fatalf("os-ken says %+v, want %s", l, event)
		}
		return l
	case <-time.After(oskenPatience):
		p.t.Fatalf("os-ken does not say %s", event)
		return oskenLine{}
	}
}

func (p *oskenPeer) listens() string { return "127.0.0.1:" + strconv.Itoa(p.next("listens").Port) }

// do orders it to send or write a message.
func (p *oskenPeer) do(verb string, xid uint32, m openflow.Message) {
	p.t.Helper()
	line, err := json.Marshal(map[string]any{"do": verb, "type": int(m.MessageType()), "xid": xid, "fields": oftest.OskenFields(m)})
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.stdin.Write(append(line, '\n')); err != nil {
		p.t.Fatalf("write to os-ken: %v", err)
	}
}

// same reports whether os-ken's reading of a message is ours.
func (l oskenLine) same(t *testing.T, m openflow.Message) {
	t.Helper()
	got, err := oftest.OskenJSON(l.Fields)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(oftest.OskenFields(m), got); d != "" {
		t.Errorf("%s\n%s\nours -, os-ken's +: %s", m, l.Hex, d)
	}
}

// decode reads the message that a line is about, as we do.
func (l oskenLine) decode(t *testing.T) openflow.Message {
	t.Helper()
	b, err := hex.DecodeString(l.Hex)
	if err != nil {
		t.Fatal(err)
	}
	_, m, err := openflow.Decode(b)
	if err != nil {
		t.Fatalf("%s: %v", l.Hex, err)
	}
	return m
}

// equal compares messages.
func equal(t *testing.T, who string, want, got openflow.Message) {
	t.Helper()
	if !oftest.Equal(want, got) {
		t.Errorf("%s: want -, got +: %s", who, cmp.Diff(fmt.Sprint(want), fmt.Sprint(got)))
	}
}
