package forward

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/law"
	"weir/law/fabric"
	"weir/law/fabric/modelnet"
)

var update = flag.Bool("update", false, "write testdata/*.txt again")

// Scripts are scenarios: each command is followed by the law's orders. Probes are left out.
// Write them again with: go test ./law/forward -run TestScripts -update
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			must(t, err)
			got := (&script{t: t}).run(string(text))
			switch {
			case *update:
				must(t, os.WriteFile(file, []byte(got), 0o600))
			case got != string(text):
				t.Errorf("%s says:\n%s\nnow:\n%s", file, text, got)
			}
		})
	}
}

type script struct {
	t    *testing.T
	n    *network
	said []string
}

// run carries out the commands, which are the lines that begin with "> ", and returns the script with the orders that follow.
func (s *script) run(text string) string {
	var out strings.Builder
	skip := false
	for line := range strings.Lines(text) {
		command, is := strings.CutPrefix(strings.TrimSpace(line), "> ")
		switch {
		case is:
			skip, s.said = true, nil
			s.do(strings.Fields(command))
			out.WriteString("> " + command + "\n")
			for _, a := range s.said {
				out.WriteString("    " + a + "\n")
			}
		case skip && strings.HasPrefix(line, "    "):
		default:
			skip = false
			out.WriteString(line)
		}
	}
	return out.String()
}

func (s *script) do(w []string) {
	var a, b, c int
	number := func(i int) (k int) {
		_, err := fmt.Sscan(w[i], &k)
		must(s.t, err)
		return k
	}
	for i, p := range []*int{&a, &b, &c} {
		if len(w) > i+1 && w[0] != "run" {
			*p = number(i + 1)
		}
	}
	switch w[0] {
	case "leaves-spines-hosts":
		s.n = leafSpine(s.t, a, b, c)
		s.n.OnAction = s.note
	case "run":
		d, err := time.ParseDuration(w[1])
		must(s.t, err)
		must(s.t, s.n.Run(d))
	case "quietly-begin":
		s.n.OnAction = nil
		s.n.begin(s.t)
		s.n.OnAction = s.note
	case "hear": // pass all events, carry out no order
		for len(s.n.Events) > 0 {
			s.n.Hear()
		}
	case "carry-out": // all orders of a switch
		for sw := s.n.Switches[law.Switch(a)]; len(sw.Orders) > 0; {
			must(s.t, s.n.Deliver(law.Switch(a)))
		}
	case "cut":
		s.n.SetLink(at(a, b), false)
	case "restore":
		s.n.SetLink(at(a, b), true)
	case "move":
		s.n.Hosts[hostMAC(a)] = at(b, c)
	case "host-asks":
		s.n.Send(hostMAC(a), modelnet.ARP(hostMAC(a), hostIP(a), fabric.Broadcast, hostIP(b)))
	case "pin":
		s.n.Events = append(s.n.Events, &fabric.PinAsked{IdleSeconds: 30,
			Tuple: fabric.Tuple{Proto: 6, Src: hostIP(a), Dst: hostIP(b), SrcPort: 1000, DstPort: 80}})
	default:
		s.t.Fatalf("no such command: %v", w)
	}
}

func (s *script) note(a law.Action) {
	id, _ := fabric.Target(a)
	line := fmt.Sprintf("%d: ", uint64(id))
	switch a := a.(type) {
	case fabric.SetFlow:
		line += fmt.Sprintf("flow %v -> %v (%v)", a.Flow.FlowKey, a.Flow.Do, a.Flow.Kind)
	case fabric.DropFlow:
		line += fmt.Sprintf("no flow %v (%v)", a.Flow.FlowKey, a.Flow.Kind)
	case fabric.SetGroup:
		line += fmt.Sprintf("group %#x -> %v", a.Group.ID, a.Group.Ports)
	case fabric.DropGroup:
		line += fmt.Sprintf("no group %#x", a.ID)
	case fabric.SetMeter:
		line += fmt.Sprintf("meter %#x %d/s burst %d", a.Meter.ID, a.Meter.Rate, a.Meter.Burst)
	case fabric.Barrier:
		line += "barrier"
	case fabric.PacketOut:
		head, _ := readHeader(a.Frame)
		if head.kind == typeLLDP {
			return
		}
		line += fmt.Sprintf("send to %v type %04x from ports %v", head.to, head.kind, a.Ports)
	}
	s.said = append(s.said, line)
}
