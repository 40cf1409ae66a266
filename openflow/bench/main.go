// Command bench compares Weir's OpenFlow codec and connection with os-ken's, and with sockets without OpenFlow (`make
// bench-openflow`). All have the same switches, the same messages and the same law. Each controller is a process on a
// processor of its own. The switches are in this process, on another processor.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
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
	Connections int `json:"connections"`
	PacketIns   int `json:"packet_ins_at_once,omitempty"` // that wait for a flow-mod at once, of each switch; 0: statistics
	Replies     int `json:"replies_at_once,omitempty"`    // statistics that are asked for at once, of each switch
}

// works lists all cases. A system call moves as many messages as wait at the socket.
func works() (all []work) {
	for _, n := range []int{1, 8, 64} {
		for _, connections := range []int{1, 100, 1000} {
			all = append(all, work{Connections: connections, PacketIns: n})
		}
	}
	for _, n := range []int{1, 8} {
		for _, connections := range []int{1, 100, 1000} {
			all = append(all, work{Connections: connections, Replies: n})
		}
	}
	return all
}

// oskenAtOnce is what os-ken is measured with: a message costs it as much in each case, and its waits are long enough.
const oskenAtOnce = 8

func (w work) String() string {
	if w.PacketIns > 0 {
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
	flag.DurationVar(&s.seconds, "for", 2*time.Second, "how long each measurement lasts")
	flag.StringVar(&s.only, "only", "", "cases whose name holds this, such as 'packet-in', '1000 conn' or 'bare'")
	asked := flag.Int("asked", 0, "with -serve: so many requests for statistics out at each switch")
	as := flag.String("serve", "", "be that controller: weir, or bare")
	flag.Parse()
	switch *as {
	case "weir":
		fail(serve(context.Background(), *asked))
	case "bare":
		fail(serveBare(*asked))
	default:
		s.all(*asJSON)
	}
}

// all measures everything.
func (s *settings) all(asJSON bool) {
	if runtime.NumCPU() < 2 {
		fail(fmt.Errorf("two processors are needed: one for the controller, one for the switches"))
	}
	fail(keepTo(0))
	runtime.LockOSThread()
	var rows []row
	var failed error
	for _, w := range works() {
		for _, name := range []string{"weir", "bare", "os-ken"} {
			if name == "os-ken" && (s.osken == "" || w.PacketIns+w.Replies != oskenAtOnce) || !strings.Contains(w.title(name), s.only) {
				continue
			}
			fmt.Fprintln(os.Stderr, w.title(name))
			r, err := s.measure(name, w)
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s: %w", w.title(name), err))
				continue
			}
			rows = append(rows, r)
		}
	}
	if asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		fail(e.Encode(rows))
	} else {
		table(os.Stdout, rows)
	}
	fail(failed)
}

func (w work) title(controller string) string {
	return fmt.Sprintf("%s, %d connections, %d at once, %s", w, w.Connections, w.PacketIns+w.Replies, controller)
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
		return s.osken, []string{"-c", osken, strconv.Itoa(w.Replies)}, nil
	}
	self, err := os.Executable()
	return self, []string{"-serve", name, "-asked", strconv.Itoa(w.Replies)}, err
}
