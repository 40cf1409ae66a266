// Command bench times Weir's OpenFlow codec and connection beside os-ken's: the same switches, the same messages and
// the same law (`make bench-openflow`). Each controller is a process on a processor of its own; the switches are here,
// on another one.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// work is one measurement.
type work struct {
	connections int
	packetIns   int // that wait for a flow-mod at once, of each switch; 0: statistics
	replies     int // statistics that are asked for at once, of each switch
}

// The last wait of os-ken's is some seconds: few wait at once where there are many switches.
var works = []work{
	{connections: 1, packetIns: 256}, {connections: 100, packetIns: 16}, {connections: 1000, packetIns: 4},
	{connections: 1, replies: 32}, {connections: 100, replies: 8}, {connections: 1000, replies: 1},
}

func (w work) String() string {
	if w.packetIns > 0 {
		return "packet-in to flow-mod"
	}
	return "statistics of 48 ports"
}

//go:embed osken.py
var osken string

type settings struct {
	osken   string
	seconds time.Duration
	only    string
}

func main() {
	var s settings
	asJSON := flag.Bool("json", false, "print JSON instead of a table")
	flag.StringVar(&s.osken, "osken", "", "a Python that has os-ken; without it Weir is measured alone")
	flag.DurationVar(&s.seconds, "for", 4*time.Second, "how long each measurement lasts")
	flag.StringVar(&s.only, "only", "", "cases whose name holds this, such as 'packet' or 'statistics'")
	asked := flag.Int("serve", -1, "be the controller, with so many requests for statistics out at each switch")
	flag.Parse()
	if *asked >= 0 {
		fail(serve(context.Background(), *asked))
		return
	}
	if runtime.NumCPU() < 2 {
		fail(fmt.Errorf("two processors are needed: one for the controller, one for the switches"))
	}
	fail(keepTo(0))
	var rows []row
	for _, w := range works {
		if !strings.Contains(w.String(), s.only) {
			continue
		}
		for _, name := range []string{"weir", "os-ken"} {
			if name == "os-ken" && s.osken == "" {
				continue
			}
			fmt.Fprintf(os.Stderr, "%s, %d connections, %s\n", w, w.connections, name)
			r, err := s.measure(name, w)
			fail(err)
			rows = append(rows, r)
		}
	}
	if *asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		fail(e.Encode(rows))
		return
	}
	table(os.Stdout, rows)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// command is how a controller is started.
func (s *settings) command(name string, w work) (string, []string, error) {
	if name == "os-ken" {
		return s.osken, []string{"-c", osken, strconv.Itoa(w.replies)}, nil
	}
	self, err := os.Executable()
	return self, []string{"-serve", strconv.Itoa(w.replies)}, err
}
