package tcp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"weir/sim/event"
	"weir/sim/network"
)

// Initial sequence numbers that make both directions wrap early: the script's after 999 bytes of data, the endpoint's
// after 4999.
const (
	scriptISN = 0xffff_fc18
	ourISN    = 0xffff_ec78
)

// giveUp bounds how long a script waits for a packet, to report what was sent instead of it.
const giveUp = 100 * event.Second

// logLines is how many lines of the log an error has.
const logLines = 25

// TestScripts plays every testdata/*.script against one endpoint.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.script")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".script"), func(t *testing.T) {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			s, err := parseScript(file, f)
			if err != nil {
				t.Fatal(err)
			}
			if err := play(s); err != nil {
				t.Error(err)
			}
		})
	}
}

// captured is a packet that the endpoint sent.
type captured struct {
	at event.Time
	pk network.Packet
}

// rig is one endpoint without a network. Packets that its host sends are captured, and packets that the script injects
// are delivered at once. If the script dials the endpoint, a real one at the other host makes the connection known to
// the stack; its packets are discarded.
type rig struct {
	script   *script
	queue    *event.Queue
	net      *network.Network
	stack    *Stack
	cfg      *Config
	endpoint *Endpoint // as its program knows it
	app      scriptApp
	listens  bool
	isn      uint32 // of the endpoint under test
	sent     []captured
	last     event.Time // when the line before happened
	log      []string
}

// Hosts and ports. The endpoint under test is here.
const (
	here      network.NodeID = 1
	there     network.NodeID = 2
	dialPort                 = 40000
	knownPort                = 80
)

// scriptApp counts the endpoint's calls of its program.
type scriptApp struct {
	connected, finished, failed, acknowledged, received int64
}

func (a *scriptApp) Connected(*Endpoint)           { a.connected++ }
func (a *scriptApp) Received(_ *Endpoint, n int64) { a.received += n }
func (a *scriptApp) Finished(*Endpoint)            { a.finished++ }
func (a *scriptApp) Acknowledged(*Endpoint)        { a.acknowledged++ }
func (a *scriptApp) Failed(_ *Endpoint, _ error)   { a.failed++ }

// play runs a script. The error says where it failed, and what had happened before.
func play(s *script) error {
	r := &rig{script: s}
	if err := r.build(); err != nil {
		return fmt.Errorf("%s: %w", s.file, err)
	}
	for i := range s.steps {
		st := &s.steps[i]
		err := r.step(st)
		if err == nil {
			err = r.sound()
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %s: %w\nbefore:\n  %s", s.file, st.line, st.text, err, strings.Join(r.log[max(0, len(r.log)-logLines):], "\n  "))
		}
	}
	if len(r.sent) > 0 {
		return fmt.Errorf("%s: after the last line: %s was sent", s.file, r.describe(&r.sent[0]))
	}
	return nil
}

// sound checks what is true of an endpoint in every script.
func (r *rig) sound() error {
	if n := r.net.Borrowed(); n != 0 {
		return fmt.Errorf("%d packets were not given back", n)
	}
	if r.endpoint == nil {
		return nil
	}
	return r.endpoint.Check()
}

func (r *rig) build() error {
	r.queue = event.NewQueue()
	r.net = &network.Network{Queue: r.queue}
	r.stack = NewStack(r.queue, r.net, 1)
	r.net.Sink = r.stack
	r.stack.Wire = r.sends
	r.stack.ISS = func() uint32 { return ourISN }
	return r.configure()
}

// sends captures a packet of the endpoint under test, and stops the clock.
func (r *rig) sends(from network.NodeID, pk *network.Packet) {
	if from == here {
		if pk.Flags()&network.SYN != 0 {
			r.isn = pk.Seq()
		}
		r.sent = append(r.sent, captured{r.queue.Now(), *pk})
		r.queue.Halt()
	}
	r.net.Free(pk)
}

// configure makes the Config: Default of base, and then fields by name.
func (r *rig) configure() error {
	settings := r.script.config
	if len(settings) == 0 || settings[0].key != "base" {
		return errors.New("config base=CONTROL comes first")
	}
	r.cfg = Default(settings[0].value)
	for _, s := range settings[1:] {
		field := fieldOf(reflect.ValueOf(r.cfg).Elem(), s.key)
		if !field.IsValid() {
			field = fieldOf(reflect.ValueOf(&r.cfg.Options).Elem(), s.key)
		}
		if !field.IsValid() {
			return fmt.Errorf("config %s: neither Config nor ControlOptions has such a field", s.key)
		}
		if err := assign(field, s.value); err != nil {
			return fmt.Errorf("config %s=%s: %w", s.key, s.value, err)
		}
	}
	return r.cfg.Check()
}

// fieldOf returns the field with that name in snake case.
func fieldOf(v reflect.Value, key string) reflect.Value {
	name := strings.ReplaceAll(key, "_", "")
	return v.FieldByNameFunc(func(field string) bool { return strings.EqualFold(field, name) })
}

func assign(field reflect.Value, value string) error {
	switch field.Kind() {
	case reflect.Bool:
		if value != "on" && value != "off" {
			return errors.New("on or off")
		}
		field.SetBool(value == "on")
	case reflect.String:
		field.SetString(value)
	default:
		n, err := parseNumber(value)
		if err != nil {
			return err
		}
		if field.CanUint() {
			field.SetUint(uint64(n))
		} else {
			field.SetInt(n)
		}
	}
	return nil
}

// parseNumber reads an integer, or a time as nanoseconds.
func parseNumber(value string) (int64, error) {
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		return n, nil
	}
	d, err := parseDuration(value)
	return int64(d), err
}

// step runs a line of the script.
func (r *rig) step(st *step) error {
	at := st.at
	if st.relative {
		at += r.last
	}
	if at < r.queue.Now() && st.verb != "expect" && st.verb != "state" {
		return fmt.Errorf("%s has passed: it is %s", clock(at), clock(r.queue.Now()))
	}
	if st.verb == "expect" {
		return r.expect(st, at)
	}
	if err := r.silence(at); err != nil {
		return err
	}
	r.last = at
	switch st.verb {
	case "state":
		return r.state(st.settings)
	case "quiet":
		return nil
	}
	r.log = append(r.log, clock(at)+" "+st.text)
	var err error
	r.within(func() { err = r.act(st) })
	return err
}

// silence runs the clock up to at. Meanwhile only expected packets may be sent.
func (r *rig) silence(at event.Time) error {
	if len(r.sent) == 0 && r.queue.Now() <= at {
		r.queue.Run(at)
	}
	if len(r.sent) > 0 {
		return fmt.Errorf("not expected: %s", r.describe(&r.sent[0]))
	}
	return nil
}

// happening runs a function as an event at the present time.
type happening func()

func (h happening) Happen(*event.Event, event.Time) { h() }

func (r *rig) within(f func()) {
	done := false
	var ev event.Event
	ev.Init(happening(func() { f(); done = true }))
	r.queue.Set(&ev, r.queue.Now())
	for !done {
		r.queue.Run(r.queue.Now())
	}
}

func (r *rig) act(st *step) error {
	if r.endpoint == nil && st.verb != "dial" && st.verb != "listen" && st.verb != "inject" {
		return errors.New("there is no endpoint yet")
	}
	switch st.verb {
	case "dial":
		r.endpoint = r.stack.Dial(here, there, dialPort, knownPort, r.cfg, &r.app)
	case "listen":
		r.listens = true
		r.stack.Listen(here, knownPort, r.cfg, func(e *Endpoint) App { r.endpoint = e; return &r.app })
		r.stack.Dial(there, here, dialPort, knownPort, r.cfg, &scriptApp{})
	case "inject":
		r.inject(&st.packet)
	case "write":
		r.endpoint.Write(st.number)
	case "close":
		r.endpoint.Close()
	case "abort":
		r.endpoint.Abort()
	case "pause":
		r.endpoint.Pause(true)
	case "resume":
		r.endpoint.Pause(false)
	}
	return nil
}

func (r *rig) inject(p *packetSpec) {
	size := p.to - p.from
	for i := range int64(p.repeat) {
		pk := r.net.NewPacket()
		r.address(pk)
		pk.SetFlags(p.flags)
		pk.SetSeq(scriptISN + uint32(p.from+i*size))
		if p.flags&network.ACK != 0 {
			pk.SetAck(r.isn + uint32(max(p.ack, 0)))
		}
		pk.SetPayload(int32(size))
		pk.SetWindow(uint16(max(p.window, 0)))
		pk.SetECN(uint8(max(p.ecn, 0)))
		pk.SetMSS(uint16(max(p.mss, 0)))
		pk.SetScale(int8(p.scale))
		pk.SetSACKPermitted(p.sackOK)
		for _, b := range p.sack {
			pk.AddBlock(network.Block{From: r.isn + uint32(b[0]), To: r.isn + uint32(b[1])})
		}
		pk.SetBytes(network.HeaderBytes + pk.Payload())
		r.stack.Deliver(here, pk, r.queue.Now())
	}
}

// address sets a packet's addresses to those of the script's side. The rig's connection is the stack's first.
func (r *rig) address(pk *network.Packet) {
	pk.SetSrc(there)
	pk.SetDst(here)
	pk.SetSrcPort(knownPort)
	pk.SetDstPort(dialPort)
	if r.listens {
		pk.SetSrcPort(dialPort)
		pk.SetDstPort(knownPort)
	}
	pk.SetProto(network.TCP)
	pk.SetConn(0)
	pk.SetToAcceptor(r.listens)
	pk.SetHash(network.FlowHash(pk.Src(), pk.Dst(), pk.SrcPort(), pk.DstPort(), network.TCP))
}
